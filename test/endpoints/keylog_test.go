package endpoints

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// keyLog opens a key log, and returns a function that reads its lines.
func keyLog(t *testing.T) (*seal.KeyLog, func() []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.log")
	l, err := seal.OpenKeyLog(path)
	if err != nil {
		t.Fatal(err)
	}
	return l, func() []string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		return slices.Collect(strings.Lines(string(b)))
	}
}

// TestKeyLog has both ends of an encrypted session, and of an encrypted direct connection, log the same
// secret under the same identifier, and nothing of a session that is not encrypted.
func TestKeyLog(t *testing.T) {
	w := newWorld(t)
	unitLog, unit := keyLog(t)
	w.unit(directly, func(c *iounit.Config) { c.KeyLog = unitLog })
	logs := map[string]func() []string{}
	logged := func(name string) func(*host.Config) {
		l, lines := keyLog(t)
		logs[name] = lines
		return func(c *host.Config) { c.KeyLog = l }
	}
	c, _, _ := w.host("clear", logged("clear"))
	c.up(t)
	a, ha, _ := w.host("alpha", makesDirect, wishes(seal.Required), logged("alpha"))
	b, hb, _ := w.host("beta", makesDirect, wishes(seal.Required), logged("beta"))
	a.up(t)
	b.up(t)
	w.newLANSwitch(a.mac, b.mac)
	there, back := newStream(t, a, b), newStream(t, b, a)
	testenv.Eventually(t, func() bool { return established(ha) && established(hb) }, "a direct connection")
	there.moves(t, 100)
	back.moves(t, 100)

	if lines := logs["clear"](); len(lines) > 0 {
		t.Errorf("of a session that is not encrypted: %q", lines)
	}
	alpha, beta := logs["alpha"](), logs["beta"]()
	if len(alpha) != 2 || len(beta) != 2 || alpha[1] != beta[1] || alpha[0] == beta[0] {
		t.Fatalf("the hosts have %q and %q", alpha, beta)
	}
	hosts := []string{alpha[0], beta[0]}
	if got := unit(); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(hosts))) {
		t.Errorf("the I/O unit has %q, the hosts %q", got, hosts)
	}
	for line, id := range map[string]string{
		alpha[0]: ha.Status().IOUnit.Session, beta[0]: hb.Status().IOUnit.Session,
		alpha[1]: ha.Status().Direct.Connections[0].ID.String(),
	} {
		if !strings.HasPrefix(line, "SPLITNIC_FRAMES "+id+" aes-128-gcm ") {
			t.Errorf("%q is not about %s", line, id)
		}
	}
}
