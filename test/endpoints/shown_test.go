package endpoints

import (
	"net"
	"sync/atomic"
	"testing"

	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/vnet"
)

// toldLAN is an interface on the card that calls told when frames begin to move.
type toldLAN struct {
	lan.Interface
	told func()
}

func (l toldLAN) Queues() []lan.Queue {
	var all []lan.Queue
	for _, q := range l.Interface.Queues() {
		all = append(all, toldQueue{q, l.told})
	}
	return all
}

type toldQueue struct {
	lan.Queue
	told func()
}

func (q toldQueue) ReadFrames(ops []vnet.ReadOp) int {
	q.told()
	return q.Queue.ReadFrames(ops)
}

// TestShownBeforeFrames reads the I/O unit's status when the frames of a session begin to move: the
// status has to include the host, also in its counters.
func TestShownBeforeFrames(t *testing.T) {
	w := newWorld(t)
	var unit atomic.Pointer[iounit.Unit]
	var began, missing atomic.Uint64
	u, _ := w.unit(func(c *iounit.Config) {
		open := c.OpenLAN
		c.OpenLAN = func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
			i, err := open(mac, queues)
			return toldLAN{i, func() {
				s := unit.Load().Status()
				if began.Add(1); len(s.Hosts) == 0 || s.Sessions == 0 {
					missing.Add(1)
				}
			}}, err
		}
	})
	unit.Store(u)
	d, _, _ := w.host("alpha")
	d.up(t)
	w.both(d)
	if n := missing.Load(); n > 0 || began.Load() == 0 {
		t.Errorf("in %d of %d looks there was no session", n, began.Load())
	}
}
