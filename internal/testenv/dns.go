package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// DNS is a DNS server, dnsmasq(8), whose zone can be changed.
type DNS struct {
	t    testing.TB
	ns   string // network namespace; "" for this one
	addr string
	dir  string
	cmd  *exec.Cmd // nil while it does not run
	out  *os.File  // its output
}

// NewDNS makes a server that will listen on addr, an address in network namespace ns. An empty ns
// is the namespace of this process. The server runs from the first call of Serve to the end of the
// test.
func NewDNS(t testing.TB, ns, addr string) *DNS {
	t.Helper()
	NeedRoot(t)
	NeedTools(t, "dnsmasq", "ip")
	d := &DNS{t: t, ns: ns, addr: addr, dir: t.TempDir()}
	var err error
	if d.out, err = os.Create(filepath.Join(d.dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Stop()
		if text, err := os.ReadFile(d.out.Name()); t.Failed() {
			t.Logf("dnsmasq (error %v):\n%s", err, text)
		}
		d.out.Close()
	})
	return d
}

// ResolvConf writes a file in the format of resolv.conf(5) with the server, and returns its path.
func (d *DNS) ResolvConf() string {
	d.t.Helper()
	path := filepath.Join(d.dir, "resolv.conf")
	d.write(path, "nameserver "+d.addr+"\noptions timeout:1 attempts:2\n")
	return path
}

// Serve restarts the server with these records, lines of dnsmasq's configuration, and no others.
// The server does not answer for a moment.
func (d *DNS) Serve(lines ...string) {
	d.t.Helper()
	d.Stop()
	path := filepath.Join(d.dir, "dnsmasq.conf")
	d.write(path, fmt.Sprintf("%s\nlisten-address=%s\nbind-interfaces\nno-resolv\nno-hosts\nno-daemon\nuser=root\n"+
		"pid-file=\nlocal=/example/\nlocal-ttl=1\nlog-facility=-\n", strings.Join(lines, "\n"), d.addr))
	words := []string{"dnsmasq", "--conf-file=" + path}
	if d.ns != "" {
		words = append([]string{"ip", "netns", "exec", d.ns}, words...)
	}
	d.cmd = exec.Command(words[0], words[1:]...)
	d.cmd.Stdout, d.cmd.Stderr = d.out, d.out
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
}

// Stop ends the server, if it runs.
func (d *DNS) Stop() {
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait() // the error is always the kill
	d.cmd = nil
}

func (d *DNS) write(path, text string) {
	d.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
}
