package e2e

import (
	"bytes"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// trustStatus is the part of a status about keys.
type trustStatus struct {
	Security struct {
		Fingerprint string `json:"fingerprint"`
		Keys        int    `json:"trusted_keys"`
		Revoked     int    `json:"revoked_keys"`
		Reload      struct {
			Done   int    `json:"done"`
			Failed int    `json:"failed"`
			Error  string `json:"error"`
		} `json:"reload"`
	} `json:"security"`
	Ended    map[string]int `json:"ended_by"`
	Refusals map[string]int `json:"refused_by"`
	Hosts    []struct {
		Name        string `json:"name"`
		Fingerprint string `json:"fingerprint"`
		Traffic     struct {
			Bound bool `json:"bound"`
		} `json:"traffic"`
	} `json:"hosts"`
}

// trust waits until cond is true of the status.
func (d *daemon) trust(what string, cond func(s *trustStatus) bool) {
	d.t.Helper()
	var s trustStatus
	eventually(d.t, func() bool {
		s = trustStatus{}
		return d.statusInto(&s) && cond(&s)
	}, "%s", what)
}

// hangUp makes the endpoint reload by SIGHUP, and waits until its status counts n reloads.
func (d *daemon) hangUp(n int) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(unix.SIGHUP); err != nil {
		d.t.Fatal(err)
	}
	d.trust(fmt.Sprintf("reload number %d", n), func(s *trustStatus) bool { return s.Security.Reload.Done == n })
}

// changeKey replaces the key in a file by a new one, as docs/security.md describes, and returns the
// fingerprint of the new key.
func changeKey(t testing.TB, bin, file string) string {
	t.Helper()
	print := strings.TrimSpace(run(t, bin, "keygen", "--out", file+".new"))
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	return print
}

// TestRDMATrust changes and revokes keys of the I/O unit and of the hosts while sessions are in use.
// Only sessions with a revoked key may end, and an open TCP connection has to survive.
func TestRDMATrust(t *testing.T) {
	files := t.TempDir()
	trusted, revoked, hostTrust := filepath.Join(files, "trusted"), filepath.Join(files, "revoked"),
		filepath.Join(files, "trusted-units")
	put := func(file string, lines ...string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.Join(append(lines, ""), "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bin := needFabric(t)
	otherKey := filepath.Join(files, "other.pem")
	other := "other=" + strings.TrimSpace(run(t, bin, "keygen", "--out", otherKey))
	put(trusted, other)
	put(revoked)
	put(hostTrust)
	r := newFixture(t, "macvtap", "--trust-file", trusted, "--revoked", revoked)
	good := r.host(t, "--trust-file", hostTrust)
	bad := r.host(t, "--key", otherKey)
	ping(t, bad.ns, addr(0), 1, 100)
	mac := good.mac()
	connection := hold(t, r, good)
	r.unit.trust("two hosts with bound sessions", func(s *trustStatus) bool {
		return len(s.Hosts) == 2 && s.Hosts[0].Traffic.Bound && s.Hosts[1].Traffic.Bound
	})

	// A key is revoked: its session has to end, and the other session must not be affected.
	put(revoked, "# stolen", other)
	r.unit.hangUp(1)
	bad.waitCarrier(false)
	r.unit.trust("a session ended, and then refused", func(s *trustStatus) bool {
		return s.Ended["revoked"] == 1 && s.Refusals["revoked"] > 0 && len(s.Hosts) == 1 && s.Security.Revoked == 1
	})
	connection.send(t)

	// A broken file must not change anything, and `splitnic reload` has to report the error.
	put(revoked, "somebody")
	mistake{"", []string{"reload", r.unit.sock}, exitFailure, []string{revoked + ":1", "splitnic keygen"}}.fails(t, bin)
	r.unit.trust("a reload that failed", func(s *trustStatus) bool {
		return s.Security.Reload.Failed == 1 && strings.Contains(s.Security.Reload.Error, revoked) && s.Security.Revoked == 1
	})
	connection.send(t)

	// The revocation is withdrawn: the host has to connect again.
	put(revoked)
	if out := run(t, bin, "reload", r.unit.sock); !strings.Contains(out, r.keys.unitPrint) {
		t.Errorf("reload says %q", out)
	}
	bad.waitCarrier(true)
	ping(t, bad.ns, addr(0), 1, 100)

	// The I/O unit gets another key, after the host trusts it.
	next := filepath.Join(files, "next.pem")
	nextUnit := strings.TrimSpace(run(t, bin, "keygen", "--out", next))
	put(hostTrust, "unit="+nextUnit)
	good.hangUp(1)
	if err := os.Rename(next, r.keys.unit); err != nil {
		t.Fatal(err)
	}
	r.unit.hangUp(3)
	r.unit.trust("the new key", func(s *trustStatus) bool {
		return s.Security.Fingerprint == nextUnit &&
			len(s.Hosts) == 2
	})
	connection.send(t)

	// A host gets another key, after the I/O unit trusts it. When the old key is revoked, the host has
	// to connect again with the same MAC address, and its open connection has to survive. The new
	// session is with the I/O unit's new key.
	hostKey := changeKey(t, bin, r.keys.host)
	put(trusted, other, "hosts="+hostKey)
	r.unit.hangUp(4)
	good.hangUp(2)
	if s := good.hostStatus(); s.Sessions != 1 {
		t.Errorf("the host had to connect again: %d sessions", s.Sessions)
	}
	put(revoked, r.keys.hostPrint)
	r.unit.hangUp(5)
	r.unit.trust("the host with its new key", func(s *trustStatus) bool {
		for _, h := range s.Hosts {
			if h.Name == good.name && h.Fingerprint == hostKey {
				return true
			}
		}
		return false
	})
	good.waitCarrier(true)
	if s := good.hostStatus(); s.IOUnit.Fingerprint != nextUnit || s.Sessions != 2 {
		t.Errorf("session %d of the host is with %s", s.Sessions, s.IOUnit.Fingerprint)
	}
	if got := good.mac(); got != mac {
		t.Errorf("the MAC address changed from %s to %s", mac, got)
	}
	connection.send(t)
	connection.check(t)
}

// TestRDMAPolicyReload reloads policies while a host has a session. A policy that allows the session
// must not end it. A policy that does not has to end it, and the host has to connect again when the
// policy allows that.
func TestRDMAPolicyReload(t *testing.T) {
	r := newFixture(t, "macvtap")
	h := r.host(t)
	connection := hold(t, r, h)
	put := func(rules string) {
		t.Helper()
		if err := os.WriteFile(r.policy, []byte(rules), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("default: {vlans: none, max-sessions: 2}\n")
	r.unit.hangUp(1)
	connection.send(t)
	if s := h.hostStatus(); s.Sessions != 1 {
		t.Errorf("the host had to connect again: %d sessions", s.Sessions)
	}
	put("default: {modes: [send]}\n") // a mode that the host does not offer
	r.unit.hangUp(2)
	h.waitCarrier(false)
	r.unit.trust("a session that the policy ended",
		func(s *trustStatus) bool { return s.Ended["policy"] == 1 && s.Refusals["mode"] > 0 })
	put("default: {modes: [imm]}\n")
	r.unit.hangUp(3)
	h.waitCarrier(true)
	connection.send(t)
	connection.check(t)
}

// seedOf returns the secret in the text of a key file: the 32 bytes at the end of the PKCS #8
// structure (RFC 8410 §7).
func seedOf(t testing.TB, text []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(text)
	if block == nil || len(block.Bytes) < 32 {
		t.Fatal("not a key")
	}
	return block.Bytes[len(block.Bytes)-32:]
}

// TestRDMASecrets checks that the private keys are not in logs, command lines, environments, statuses
// and metrics, in several encodings, and that key files and sockets are private.
func TestRDMASecrets(t *testing.T) {
	verbose := []string{"--log-level", "debug", "--metrics"}
	r := newFixture(t, "macvtap", append(verbose, "127.0.0.1:9591")...)
	h := r.host(t, append(verbose, "127.0.0.1:9592")...)
	ping(t, h.ns, addr(0), 3, 100)
	run(t, r.bin, "reload", r.unit.sock, h.sock)
	var seen bytes.Buffer
	look := func(what string, b []byte, err error) {
		t.Helper()
		if err != nil || len(b) == 0 {
			t.Errorf("%s: %d bytes, %v", what, len(b), err)
		}
		fmt.Fprintf(&seen, "\n%s:\n%s", what, b)
	}
	for i, d := range []*daemon{r.unit, h.daemon} {
		b, err := os.ReadFile(d.log)
		look("log", b, err)
		for _, name := range []string{"cmdline", "environ"} {
			b, err = os.ReadFile(fmt.Sprintf("/proc/%d/%s", d.cmd.Process.Pid, name))
			look(name, b, err)
		}
		for _, form := range [][]string{{"status"}, {"status", "-v"}, {"status", "--json"}} {
			b, err = exec.CommandContext(t.Context(), r.bin, append(form, d.sock)...).Output()
			look("status", b, err)
		}
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", 9591+i))
		if err != nil {
			t.Fatal(err)
		}
		b, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		look("metrics", b, err)
		if info, err := os.Stat(d.sock); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("status socket: %v, %v", info.Mode(), err)
		}
	}
	for _, file := range []string{r.keys.unit, r.keys.host} {
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		seed := seedOf(t, text)
		for form, secret := range map[string]string{
			"the file's line": strings.Split(string(text), "\n")[1],
			"the bytes":       string(seed), "hexadecimal": hex.EncodeToString(seed),
			"decimal": strings.Trim(fmt.Sprintf("%d", seed), "[]"),
		} {
			if strings.Contains(strings.ToLower(seen.String()), strings.ToLower(secret)) {
				t.Errorf("the key of %s is to be seen, as %s", filepath.Base(file), form)
			}
		}
	}
}
