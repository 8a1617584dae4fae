package daemon

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// TestNetnsAgentPersist replaces an agent with --persist, as a pod is replaced. It expects the
// netdevices of the cards to stay, with the settings of an administrator, and without carrier
// while no agent runs. A netdevice is removed with its card, and a card with its namespace.
func TestNetnsAgentPersist(t *testing.T) {
	f := newAgentFixture(t)
	f.stop()
	f.cfg.Persist = true
	f.start()
	ns, gone := testenv.NetNS(t), fmt.Sprintf("sntest-persist-%d", os.Getpid())
	if err := netns.New(gone); err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]cards.Spec{
		"pod": {NetNS: ns, Netdevice: "eth0"}, "gone": {NetNS: gone, Transient: true},
	} {
		spec.Name = name
		if _, err := f.client().Add(t.Context(), &spec); err != nil {
			t.Fatal(err)
		}
	}
	f.connected(2)
	testenv.Address(t, ns, "eth0", "10.78.0.2/16")
	testenv.Run(t, ns, "ping", "-c", "1", "-W", "10", "10.78.0.1")
	before := testenv.Link(t, ns, "eth0").Attrs()

	f.stop()
	link := testenv.Link(t, ns, "eth0")
	if link == nil || link.Attrs().Index != before.Index {
		t.Fatalf("without the agent there is %+v", link)
	}
	if link.Attrs().RawFlags&unix.IFF_LOWER_UP != 0 {
		t.Error("it has carrier without the agent")
	}
	if err := netns.Delete(gone); err != nil {
		t.Fatal(err)
	}

	f.start()
	f.connected(1)
	after := testenv.Link(t, ns, "eth0").Attrs()
	if after.Index != before.Index || !slices.Equal(after.HardwareAddr, before.HardwareAddr) {
		t.Errorf("it was %d, %v and is %d, %v", before.Index, before.HardwareAddr, after.Index, after.HardwareAddr)
	}
	testenv.Run(t, ns, "ping", "-c", "1", "-W", "10", "10.78.0.1") // the netdevice has kept its address
	testenv.Eventually(t, func() bool { _, there := f.agent.set.Get("gone"); return !there },
		"the card whose namespace is gone being forgotten")

	if err := f.client().Del(t.Context(), "pod"); err != nil {
		t.Error(err)
	}
	if links := testenv.Links(t, ns); !slices.Equal(links, []string{"lo"}) {
		t.Errorf("%v is left of a card that was removed", links)
	}
}

// TestNetnsAgentPersistFails has a card fail after its netdevice was made. It expects the
// netdevice to be removed.
func TestNetnsAgentPersistFails(t *testing.T) {
	f := newAgentFixture(t)
	f.stop()
	f.cfg.Persist = true
	f.cfg.Messaging.Pools = []messaging.PoolConfig{{ElementSize: 1, Elements: 1}} // rejected by host.New
	f.start()
	ns := testenv.NetNS(t)
	if _, err := f.client().Add(t.Context(), &cards.Spec{Name: "pod", NetNS: ns}); err == nil {
		t.Error("the card was made")
	}
	if links := testenv.Links(t, ns); !slices.Equal(links, []string{"lo"}) {
		t.Errorf("%v is left of a card that could not be made", links)
	}
}
