package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/journal"
	"github.com/splitnic/splitnic/internal/testca"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// reloading is the reloader of an I/O unit, with all its files.
type reloading struct {
	t   *testing.T
	dir string
	*reloader
	policies []*policy.Policy // that were put in force

	// Results of reread.
	sources Sources
	late    []string
	err     error
}

func (r *reloading) path(name string) string { return filepath.Join(r.dir, name) }

// write replaces a file.
func (r *reloading) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(r.path(name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// newKey replaces the key in a file by a new one, and returns its fingerprint.
func (r *reloading) newKey(name string) session.Fingerprint {
	r.t.Helper()
	key, err := session.GenerateKey()
	if err == nil {
		if err = os.Remove(r.path(name)); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = session.SaveKey(r.path(name), key)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return key.Fingerprint()
}

// print returns the fingerprint of a new key.
func (r *reloading) print() string {
	r.t.Helper()
	return r.newKey("other.pem").String()
}

func newReloading(t *testing.T) *reloading {
	t.Helper()
	r := &reloading{t: t, dir: t.TempDir()}
	r.newKey("key.pem")
	r.write("trust", r.print()+"\n")
	r.write("revoked", "")
	r.write("policy.yaml", "default: {vlans: none}\n")
	r.sources = Sources{
		Keys:   Keys{Key: r.path("key.pem"), TrustFile: r.path("trust"), Revoked: r.path("revoked")},
		Policy: r.path("policy.yaml"),
	}
	r.reloader = newReloader(r.reread, r.path("config.yaml"), r.load(), func(p *policy.Policy) int {
		r.policies = append(r.policies, p)
		return 3
	}, slog.New(slog.DiscardHandler))
	return r
}

func (r *reloading) reread() (Sources, []string, error) { return r.sources, r.late, r.err }

// load loads the keys as at the start.
func (r *reloading) load() *session.Security {
	r.t.Helper()
	security, err := r.sources.Keys.load()
	if err != nil {
		r.t.Fatal(err)
	}
	return security
}

// vlans returns the VLANs of the policy in force.
func (r *reloading) vlans() string {
	if len(r.policies) == 0 {
		return ""
	}
	return r.policies[len(r.policies)-1].For("", "").VLANs.String()
}

// TestReloadLogLevel changes the level of the log, and leaves it if the reload fails.
func TestReloadLogLevel(t *testing.T) {
	defer journal.Level.Set(journal.Level.Level())
	r := newReloading(t)
	r.sources.LogLevel = slog.LevelDebug
	if _, err := r.reload(); err != nil || journal.Level.Level() != slog.LevelDebug {
		t.Errorf("%v, the level is %v", err, journal.Level.Level())
	}
	r.sources.LogLevel = slog.LevelError
	r.write("trust", "no entry")
	if _, err := r.reload(); err == nil || journal.Level.Level() != slog.LevelDebug {
		t.Errorf("%v, the level is %v", err, journal.Level.Level())
	}
}

func TestReload(t *testing.T) {
	r := newReloading(t)
	next := r.newKey("key.pem")
	r.write("trust", "alpha="+r.print()+"\nbeta="+r.print()+"\n")
	r.write("revoked", r.print())
	r.write("policy.yaml", "default: {vlans: 7}\n")
	done, err := r.reload()
	if err != nil || done.Fingerprint != next.String() || done.Ended != 3 {
		t.Errorf("%+v, %v", done, err)
	}
	if s := r.status(); s.Fingerprint != next.String() || s.Keys != 2 || s.Revoked != 1 || s.Reload.Done != 1 ||
		s.Reload.Failed != 0 || s.Reload.Error != "" || s.Reload.Last.IsZero() {
		t.Errorf("%+v", s)
	}
	if r.vlans() != "7" {
		t.Errorf("the policy gives VLANs %s", r.vlans())
	}
	// The configuration names other files.
	r.sources = Sources{Keys: Keys{Key: r.path("key.pem"), Trust: []string{r.print(), r.print(), r.print()}}}
	r.late = []string{"qp-retries"}
	done, err = r.reload()
	if err != nil || !slices.Equal(done.Late, r.late) {
		t.Errorf("%+v, %v", done, err)
	}
	if s := r.status(); s.Keys != 3 || s.Revoked != 0 || r.vlans() != "all" {
		t.Errorf("%+v, VLANs %s", s, r.vlans())
	}
}

// TestReloadWithMistakes changes all files, with one mistake each time. It expects that nothing
// is put in force.
func TestReloadWithMistakes(t *testing.T) {
	for name, spoil := range map[string]func(r *reloading){
		"key missing":           func(r *reloading) { _ = os.Remove(r.path("key.pem")) },
		"key that others read":  func(r *reloading) { _ = os.Chmod(r.path("key.pem"), 0o644) },
		"key cut short":         func(r *reloading) { r.write("key.pem", "-----BEGIN PRIVATE KEY-----\n") },
		"trust file of prose":   func(r *reloading) { r.write("trust", "everybody\n") },
		"nobody trusted":        func(r *reloading) { r.write("trust", "\n") },
		"revoked file missing":  func(r *reloading) { _ = os.Remove(r.path("revoked")) },
		"revoked file of prose": func(r *reloading) { r.write("revoked", "nobody\n") },
		"policy with an error":  func(r *reloading) { r.write("policy.yaml", "default: {vlans: many}\n") },
		"policy missing":        func(r *reloading) { _ = os.Remove(r.path("policy.yaml")) },
		"configuration":         func(r *reloading) { r.err = errors.New("a mistake in it") },
		"insecure":              func(r *reloading) { r.sources.Keys = Keys{Insecure: true} },
		"insecure, with keys":   func(r *reloading) { r.sources.Keys.Insecure = true },
		"authorities missing":   func(r *reloading) { r.sources.Keys.CA = r.path("ca.pem") },
		"name without them":     func(r *reloading) { r.sources.Keys.IOUnitNames = []string{"gw1"} },
	} {
		t.Run(name, func(t *testing.T) {
			r := newReloading(t)
			before := r.status()
			r.newKey("key.pem")
			r.write("trust", r.print()+"\n"+r.print()+"\n")
			r.write("revoked", r.print())
			r.write("policy.yaml", "default: {vlans: 7}\n")
			spoil(r)
			_, err := r.reload()
			after := r.status()
			if err == nil || after.Standing != before.Standing || len(r.policies) != 0 {
				t.Errorf("%v; %+v became %+v, %d policies", err, before, after, len(r.policies))
			}
			if after.Reload.Failed != 1 || after.Reload.Done != 0 || err != nil && after.Reload.Error != err.Error() {
				t.Errorf("%+v", after.Reload)
			}
		})
	}
}

// warnings is a log handler that collects the hosts in warnings.
type warnings struct {
	slog.Handler
	hosts *[]string
}

// Handle implements slog.Handler.
func (w warnings) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if r.Level == slog.LevelWarn && a.Key == "host" {
			*w.hosts = append(*w.hosts, a.Value.String())
		}
		return true
	})
	return nil
}

// TestReloadUnknownHosts expects each reload to warn about policy entries that match no host. A
// reload that fails must not warn about a policy that is not in force.
func TestReloadUnknownHosts(t *testing.T) {
	r := newReloading(t)
	var told []string
	r.log = slog.New(warnings{slog.NewTextHandler(t.Output(), nil), &told})
	r.write("trust", "alpha="+r.print()+"\n")
	r.write("policy.yaml", "hosts: {alpha: {vlans: 5}, alhpa: {vlans: 5}, gateway: {macs: 02:00:00:00:00:01}}\n")
	for _, want := range [][]string{{"alhpa"}, {"alhpa"}} { // with each reload
		told = nil
		if _, err := r.reload(); err != nil || !slices.Equal(told, want) {
			t.Errorf("%q, %v", told, err)
		}
	}
	told = nil
	r.write("trust", "alpha="+r.print()+"\nalhpa="+r.print()+"\n")
	if _, err := r.reload(); err != nil || told != nil {
		t.Errorf("%q, %v", told, err)
	}
	r.write("trust", "nonsense")
	if _, err := r.reload(); err == nil || told != nil {
		t.Errorf("%q, %v", told, err)
	}
}

func TestReloadInsecure(t *testing.T) {
	r := newReloading(t)
	r.sources = Sources{Keys: Keys{Insecure: true}}
	security := r.load()
	before := security.Fingerprint()
	h := newReloader(r.reread, "", security, nil, slog.New(slog.DiscardHandler))
	if _, err := h.reload(); err != nil || security.Fingerprint() != before {
		t.Errorf("%v", err)
	}
	r.sources.Keys.Trust = []string{r.print()}
	if _, err := h.reload(); err == nil {
		t.Error("keys without a use are accepted")
	}
}

// TestReloadBySignal reloads with SIGHUP, as systemd does for a service of Type=notify-reload,
// and expects the notifications.
func TestReloadBySignal(t *testing.T) {
	r := newReloading(t)
	addr := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"}
	manager, err := net.ListenUnixgram("unixgram", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", addr.Name)
	defer r.start(t.Context())()
	if err := unix.Kill(os.Getpid(), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := manager.SetReadDeadline(time.Now().Add(testenv.Patience)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`^RELOADING=1\nMONOTONIC_USEC=[1-9][0-9]+$`, "^READY=1$"} {
		b := make([]byte, 256)
		n, err := manager.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(want).Match(b[:n]) {
			t.Errorf("systemd was told %q, not %q", b[:n], want)
		}
	}
	if s := r.status().Reload; s.Done != 1 {
		t.Errorf("%+v", s)
	}
}

func TestReloadMetrics(t *testing.T) {
	r := newReloading(t)
	r.write("policy.yaml", "nonsense\n")
	_, _ = r.reload()
	got := map[string]float64{}
	r.metrics(func(_ *prometheus.Desc, _ prometheus.ValueType, v float64, labels ...string) {
		got[strings.Join(labels, " ")] = v
	})
	if got["failed"] != 1 || got["done"] != 0 || got["trusted"] != 1 || got["revoked"] != 0 {
		t.Errorf("%v", got)
	}
}

// TestReloadNames reloads the names that a host accepts for its I/O units.
func TestReloadNames(t *testing.T) {
	r := newReloading(t)
	r.sources.Keys.CA, r.sources.Keys.IOUnitNames = testca.New(t).File, []string{"gw1"}
	h := newReloader(r.reread, "", r.load(), nil, slog.New(slog.DiscardHandler))
	if _, err := h.reload(); err != nil {
		t.Error(err)
	}
	r.sources.Keys.IOUnitNames = []string{"gw 1"}
	if _, err := h.reload(); err == nil || !strings.Contains(err.Error(), "--iounit-name") {
		t.Errorf("a name that cannot be: %v", err)
	}
}
