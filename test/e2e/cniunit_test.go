package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

// TestRDMACNIUnitKilled kills the I/O unit repeatedly while containers are made and removed. The
// agent and its cards have to survive: a card loses carrier and gets it back, with the same
// netdevice. ADD has to wait for the next I/O unit, or to report that the I/O unit is missing and
// leave nothing behind.
func TestRDMACNIUnitKilled(t *testing.T) {
	p := newCNIPods(t)
	list := p.network(0)
	p.add(list)
	testenv.Address(t, p.ns, "eth0", addr(1)+"/24")
	ping(t, p.ns, addr(0), 2, 56)
	index := testenv.Link(t, p.ns, "eth0").Attrs().Index
	agent := p.agent.cmd.Process.Pid

	// An ADD that finds no I/O unit fails after its timeout.
	p.unit.kill()
	late := p.container(t, "late")
	_, err := p.plugins.AddNetworkList(t.Context(), p.patient(0, 2*time.Second), late)
	p.missed(err)
	eventually(t, func() bool { return !carrier(t, p.ns, "eth0") }, "a container without carrier")
	if links := testenv.Links(t, filepath.Base(late.NetNS)); len(links) != 1 {
		t.Errorf("%v after an ADD that failed", links)
	}
	if cards := p.agent.cards(); len(cards) != 1 {
		t.Errorf("there are the cards %v after an ADD that failed", cards)
	}
	// An ADD with a long timeout waits for the next I/O unit.
	added := make(chan error, 1)
	go func() {
		_, err := p.plugins.AddNetworkList(t.Context(), list, late)
		added <- err
	}()
	eventually(t, func() bool { return len(p.agent.cards()) == 2 }, "a card that waits for an I/O unit")
	p.startUnit()
	if err := <-added; err != nil {
		t.Errorf("ADD that has begun before there was an I/O unit: %v", err)
	}
	if err := p.plugins.DelNetworkList(t.Context(), list, late); err != nil {
		t.Error(err)
	}

	stop := make(chan struct{})
	var workers sync.WaitGroup
	end := sync.OnceFunc(func() {
		close(stop)
		workers.Wait()
	})
	defer end()
	var made, failed atomic.Int32
	for i := range 2 { // the agent has room for three cards
		pod := p.container(t, fmt.Sprint("pod", i))
		workers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := p.plugins.AddNetworkList(t.Context(), p.patient(0, within(3*time.Second)), pod); err != nil {
					failed.Add(1)
					p.missed(err)
				} else {
					made.Add(1)
				}
				if err := p.plugins.DelNetworkList(t.Context(), list, pod); err != nil {
					t.Errorf("DEL: %v", err)
				}
			}
		})
	}
	for range 4 {
		before := made.Load()
		eventually(t, func() bool { return made.Load() > before }, "a container that was made")
		p.unit.kill()
		eventually(t, func() bool { return !carrier(t, p.ns, "eth0") }, "a container without carrier")
		p.startUnit()
		eventually(t, func() bool { return carrier(t, p.ns, "eth0") }, "a container with carrier")
		ping(t, p.ns, addr(0), 2, 56)
	}
	end()
	t.Logf("%d containers made, %d not", made.Load(), failed.Load())
	if got := testenv.Link(t, p.ns, "eth0").Attrs().Index; got != index {
		t.Errorf("eth0 is another: %d and not %d", got, index)
	}
	if !p.agent.running() || p.agent.cmd.Process.Pid != agent {
		t.Error("the agent has ended")
	}
	p.del(list)
	eventually(t, func() bool { return len(p.unit.unitStatus().Hosts) == 0 }, "an I/O unit without hosts")
}

// container returns the configuration of a container with its own network namespace.
func (p *cniPods) container(t *testing.T, id string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: id, NetNS: netns.Path(testenv.NetNS(t)), IfName: "eth0"}
}

// missed checks the error of an ADD that has found no I/O unit.
func (p *cniPods) missed(err error) {
	p.t.Helper()
	var e *types.Error
	if !errors.As(err, &e) || e.Code != types.ErrTryAgainLater {
		p.t.Errorf("ADD without an I/O unit: %v", err)
		return
	}
	testenv.Explained(p.t, e.Error())
}
