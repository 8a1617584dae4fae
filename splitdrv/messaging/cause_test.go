package messaging_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// started returns two endpoints on a network, connected and started.
func started(t *testing.T, n *fabrictest.Network, a, b fabric.Device, cfg messaging.Config) []*endpoint {
	t.Helper()
	fabrictest.NoLeaks(t, n)
	sides := []*endpoint{newEndpointOn(t, a, "a", cfg), newEndpointOn(t, b, "b", cfg)}
	connect(t, sides[0], sides[1])
	for _, h := range sides {
		if err := h.conn.Start(h.ports); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, sides[0], sides[1])
	return sides
}

// TestRefusedPost makes a work request fail on devices that refuse to post more on a queue pair that
// has failed. The session must end with the failure, and not with the refusal.
func TestRefusedPost(t *testing.T) {
	want := &fabric.WCError{Status: fabric.StatusRemOpErr}
	for _, mode := range protocol.Modes() {
		for _, onControl := range []bool{false, true} {
			for _, query := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, control %t, query %t", mode, onControl, query), func(t *testing.T) {
					n := fabrictest.New(fabrictest.WithAdapter(fabrictest.Adapter{StrictPosts: unix.EINVAL, NoQuery: !query}))
					sides := started(t, n, n.Device("a"), n.Device("b"), patient(messaging.Config{Mode: mode}))
					a := sides[0]
					control := a.conn.Addresses()[0].QPN
					n.OnSend("a", func(qpn uint32, _ fabric.SendWR) fabric.Status {
						if (qpn == control) != onControl {
							return fabric.StatusSuccess
						}
						return fabric.StatusRemOpErr
					})
					ctx := deadline(t)
					for i := range uint64(100) {
						if a.wires[0].Send(ctx, frame(i, 1000, 1500)) != nil {
							break
						}
					}
					if onControl {
						_, _ = a.conn.Request(ctx, protocol.CfgKeepAlive, nil)
						_, _ = a.conn.Request(ctx, protocol.CfgKeepAlive, nil)
					}
					if err := ended(t, a); !errors.Is(err, want) {
						t.Errorf("%v", err)
					}
				})
			}
		}
	}
}

// TestOwnCause expects that the worker whose post is refused looks at its own completion queue, and
// anybody at that of the control channel, which has a lock.
func TestOwnCause(t *testing.T) {
	for _, control := range []bool{false, true} {
		n := fabrictest.New()
		fabrictest.NoLeaks(t, n)
		a, b := newEndpoint(t, n, "a", messaging.Config{}), newEndpoint(t, n, "b", messaging.Config{})
		connect(t, a, b)
		n.OnSend("a", func(uint32, fabric.SendWR) fabric.Status { return fabric.StatusRemOpErr })
		want := &fabric.WCError{Status: fabric.StatusRemOpErr}
		if err := a.conn.OwnCause(control, errors.New("no")); !errors.Is(err, want) {
			t.Errorf("control channel %t: %v", control, err)
		}
	}
}

// TestRefusalCountsAsFlush refuses a post on a queue pair whose failure is seen by the peer only. That
// counts as a flush. A post that is refused for another reason does not.
func TestRefusalCountsAsFlush(t *testing.T) {
	flush, no := &fabric.WCError{Status: fabric.StatusWRFlushErr}, errors.New("no")
	for _, fails := range []bool{true, false} {
		n := fabrictest.New()
		sides := started(t, n, n.Device("a"), n.Device("b"), patient(messaging.Config{}))
		if err := sides[0].conn.CauseOfRefusal(fails, no); !errors.Is(err, no) || errors.Is(err, flush) != fails {
			t.Errorf("queue pair failed %t: %v", fails, err)
		}
	}
}

// onePoller finds out whether two goroutines poll a completion queue at the same time. While it holds,
// senders wait when they poll.
type onePoller struct {
	clash atomic.Bool

	mu     sync.Mutex
	hold   bool
	change sync.Cond
}

func (d *onePoller) holds(hold bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hold = hold
	d.change.Broadcast()
}

func (d *onePoller) poll(q *polledCQ, out []fabric.Completion) (int, error) {
	if q.busy.Swap(true) {
		d.clash.Store(true)
		d.holds(false)
	}
	defer q.busy.Store(false)
	q.polls++
	d.mu.Lock()
	for q.sends && !q.recvs && d.hold {
		d.change.Wait()
	}
	d.mu.Unlock()
	return q.CQ.Poll(out)
}

// TestOnePoller makes writes fail while the sender polls its completion queue. No other goroutine may
// poll that to find the cause.
func TestOnePoller(t *testing.T) {
	for _, mode := range protocol.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			n := fabrictest.New()
			var d onePoller
			d.change.L = &d.mu
			sides := started(t, n, &polled{n.Device("a"), d.poll}, n.Device("b"), patient(messaging.Config{Mode: mode}))
			a := sides[0]
			control := a.conn.Addresses()[0].QPN
			n.OnSend("a", func(qpn uint32, _ fabric.SendWR) fabric.Status {
				if qpn == control {
					return fabric.StatusSuccess
				}
				d.holds(true)
				return fabric.StatusRemOpErr
			})
			if err := a.wires[0].Send(deadline(t), frame(1, 100, 1500)); err != nil {
				t.Fatal(err)
			}
			_ = ended(t, a) // because of the flushed receives: the sender cannot tell the cause
			d.holds(false)
			if d.clash.Load() {
				t.Error("two goroutines have polled one completion queue")
			}
		})
	}
}
