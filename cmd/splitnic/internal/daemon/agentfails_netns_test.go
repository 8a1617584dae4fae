package daemon

import (
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
)

// TestNetnsAgentReloadMetrics has a reload of an agent fail before any card is reloaded, and
// expects the metrics to count it, beside those of its cards.
func TestNetnsAgentReloadMetrics(t *testing.T) {
	f := newAgentFixture(t)
	spec := cards.Spec{Name: "pod", Netdevice: "eth0", NetNS: testenv.NetNS(t)}
	if _, err := f.client().Add(t.Context(), &spec); err != nil {
		t.Fatal(err)
	}
	if _, err := f.agent.reload(); err != nil {
		t.Fatal(err)
	}
	f.agent.cfg.Reread = func() (Sources, []string, error) { return Sources{}, nil, errors.New("a mistake") }
	if _, err := f.agent.reload(); err == nil {
		t.Fatal("the reload has not failed")
	}
	text := scraped(f.agent.metrics())
	for _, want := range []string{
		`splitnic_reloads_total{result="done"} 1`, `splitnic_reloads_total{result="failed"} 1`,
		`splitnic_reloads_total{card="pod",result="done"} 1`, `splitnic_reloads_total{card="pod",result="failed"} 0`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
}

// TestNetnsAgentFailsToStart has an agent restore a card, whose netdevice a service manager keeps,
// and then fail, because another process has the port of its metrics. It expects the netdevice to
// lose its carrier, because nobody serves it.
func TestNetnsAgentFailsToStart(t *testing.T) {
	f := newAgentFixture(t)
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	f.stop()
	f.store.socket = path
	f.start()
	ns := testenv.NetNS(t)
	if _, err := f.client().Add(t.Context(), &cards.Spec{Name: "pod", Netdevice: "eth0", NetNS: ns}); err != nil {
		t.Fatal(err)
	}
	f.connected(1)
	var kept [2]int // descriptors of the service manager, and of the next process
	for i := range kept {
		if kept[i], err = unix.Dup(f.agent.present()[0].netdev.tap.Queues()[0].FD()); err != nil {
			t.Fatal(err)
		}
	}
	defer unix.Close(kept[0])
	carrier := func() (up bool) {
		testenv.With(t, ns, func(h *netlink.Handle) error {
			l, err := h.LinkByName("eth0")
			if err == nil {
				up = l.Attrs().RawFlags&unix.IFF_LOWER_UP != 0
			}
			return err
		})
		return up
	}
	f.stop()
	if !carrier() {
		t.Error("an agent that has ended has taken the carrier away")
	}
	ln, err := net.Listen("tcp", testenv.Loopback()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c := f.cfg
	c.Metrics = ln.Addr().String()
	store := &fdStore{socket: path, held: map[string]int{"pod/0": kept[1]}}
	store.enter("pod/0")
	a := newAgent(&c, store, slog.New(slog.DiscardHandler), func(string) (fabric.Device, uint8, error) {
		return f.fabric.Device("host"), 0, nil
	})
	state, err := cards.OpenStore(filepath.Join(c.State, "cards"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.run(t.Context(), state), a.close(), state.Close()); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("the agent has not failed at its metrics: %v", err)
	}
	if carrier() {
		t.Error("the netdevice has carrier, and nobody serves it")
	}
}
