//go:build cgo

package verbs_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/verbs"
)

func wantClosed(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("%s after Close: %v", what, err)
	}
}

func TestRDMAUseAfterClose(t *testing.T) {
	a, _ := newPair(t, fabric.RC)
	w := newWindow(t, a)
	check(t, a.ctx.Close())
	check(t, a.ctx.Close())
	check(t, a.dom.Close())
	check(t, a.qp.Close())
	check(t, a.mr.Close())
	check(t, w.Close())
	check(t, a.sendCQ.Close())

	_, err := a.qp.PostSend(make([]fabric.SendWR, 1))
	wantClosed(t, "PostSend", err)
	_, err = a.qp.PostRecv(make([]fabric.RecvWR, 1))
	wantClosed(t, "PostRecv", err)
	_, err = a.qp.Bind(a.binding(w, 0, 0))
	wantClosed(t, "Bind", err)
	wantClosed(t, "Unbind", a.qp.Unbind(w, 0, 0))
	wantClosed(t, "Fail", a.qp.Fail())
	wantClosed(t, "Reset", a.qp.Reset())
	wantClosed(t, "Connect", a.qp.Connect(a.qp.Address(), fabric.Timing{}))
	_, err = a.qp.QueryState()
	wantClosed(t, "QueryState", err)
	_, err = a.sendCQ.Poll(make([]fabric.Completion, 1))
	wantClosed(t, "Poll", err)
	wantClosed(t, "Arm", a.sendCQ.Arm(false))
	wantClosed(t, "Wait", a.sendCQ.Wait(context.Background()))
	_, err = a.sendCQ.ReadEvent()
	wantClosed(t, "CQ.ReadEvent", err)
	_, err = a.dom.NewQP(fabric.QPConfig{})
	wantClosed(t, "NewQP", err)
	_, err = a.dom.NewCQ(1, 0)
	wantClosed(t, "NewCQ", err)
	_, err = a.dom.NewWindow()
	wantClosed(t, "NewWindow", err)
	_, err = a.dom.Register(a.mem, 0)
	wantClosed(t, "Register", err)
	_, err = a.ctx.NewDomain()
	wantClosed(t, "NewDomain", err)
	_, err = a.ctx.Port(1)
	wantClosed(t, "Port", err)
	_, err = a.ctx.QueryGIDTable()
	wantClosed(t, "QueryGIDTable", err)
	_, err = a.ctx.WaitEvent(context.Background())
	wantClosed(t, "WaitEvent", err)
}

// TestRDMACloseOrder closes one object and then the device, which closes the remaining objects. An
// object has to close its children first.
func TestRDMACloseOrder(t *testing.T) {
	for _, first := range []string{"qp", "send cq", "recv cq", "region", "domain", "device"} {
		t.Run(first, func(t *testing.T) {
			a, _ := newPair(t, fabric.RC)
			switch first {
			case "qp":
				check(t, a.qp.Close())
			case "send cq":
				check(t, a.sendCQ.Close())
				_, err := a.qp.PostSend(make([]fabric.SendWR, 1))
				wantClosed(t, "PostSend", err)
			case "recv cq":
				check(t, a.recvCQ.Close())
				_, err := a.qp.PostRecv(make([]fabric.RecvWR, 1))
				wantClosed(t, "PostRecv", err)
			case "region":
				check(t, a.mr.Close())
			case "domain":
				check(t, a.dom.Close())
			}
			check(t, a.ctx.Close())
		})
	}
}

// TestRDMACloseWhileInUse closes the devices while all queues are in use. It expects all operations
// to end, with an error for a closed object.
func TestRDMACloseWhileInUse(t *testing.T) {
	for range 5 {
		a, b := newPair(t, fabric.RC)
		var wg sync.WaitGroup
		until := func(f func() error) {
			wg.Go(func() {
				for {
					if err := f(); err != nil && !errors.Is(err, fabric.ErrQueueFull) {
						if !errors.Is(err, net.ErrClosed) && !errors.Is(err, syscall.EINVAL) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		for _, e := range []*end{a, b} {
			out := make([]fabric.Completion, 16)
			until(func() error { _, err := e.qp.PostRecv(make([]fabric.RecvWR, 8)); return err })
			until(func() error { _, err := e.recvCQ.Poll(out); return err })
			until(func() error { return e.recvCQ.Arm(false) })
			until(func() error { return e.recvCQ.Wait(context.Background()) })
			until(func() error { _, err := e.sendCQ.Poll(make([]fabric.Completion, 16)); return err })
			until(func() error { _, err := e.ctx.WaitEvent(context.Background()); return err })
		}
		until(func() error {
			_, err := a.qp.PostSend([]fabric.SendWR{writeImm(a, b, fabric.Signaled)})
			return err
		})
		for range 20 {
			pollAny(t, b.recvCQ)
		}
		check(t, a.ctx.Close())
		check(t, b.ctx.Close())
		wg.Wait()
	}
}

// pollAny polls once. Other goroutines use the queue at the same time.
func pollAny(t *testing.T, cq fabric.CQ) {
	t.Helper()
	if _, err := cq.Poll(make([]fabric.Completion, 1)); err != nil {
		t.Fatal(err)
	}
}

func TestRDMATransitions(t *testing.T) {
	a, b := newEnd(t, 0, fabric.RC), newEnd(t, 1, fabric.RC)
	if _, err := a.qp.PostSend([]fabric.SendWR{writeImm(a, b, 0)}); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("send in INIT: %v", err)
	}
	if err := a.qp.ToRTS(fabric.Timing{}); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("INIT to RTS: %v", err)
	}
	for round := range 3 {
		for _, x := range [][2]*end{{a, b}, {b, a}} {
			check(t, x[0].qp.ToRTR(x[1].qp.Address(), fabric.Timing{}))
			if s := x[0].qp.State(); s != verbs.StateRTR {
				t.Fatalf("state %v", s)
			}
			check(t, x[0].qp.ToRTS(fabric.Timing{}))
			if s := must(x[0].qp.QueryState())(t); s != verbs.StateRTS {
				t.Fatalf("the device says %v", s)
			}
		}
		postRecv(t, b.qp, fabric.RecvWR{})
		postSend(t, a.qp, writeImm(a, b, fabric.Signaled))
		pollOK(t, a.sendCQ, 1)
		pollOK(t, b.recvCQ, 1)
		if round%2 == 0 {
			check(t, a.qp.Fail())
		}
		for _, e := range []*end{a, b} {
			check(t, e.qp.Reset())
			if _, err := e.qp.PostRecv(make([]fabric.RecvWR, 1)); !errors.Is(err, syscall.EINVAL) {
				t.Fatalf("receive in RESET: %v", err)
			}
			check(t, e.qp.ToInit())
		}
	}
}

func TestRDMANewQPRefusals(t *testing.T) {
	a, b := newEnd(t, 0, fabric.RC), newEnd(t, 1, fabric.RC)
	good := fabric.QPConfig{Transport: fabric.RC, SendCQ: a.sendCQ, RecvCQ: a.recvCQ, MaxSend: 1, MaxRecv: 1}
	for name, change := range map[string]func(*fabric.QPConfig){
		"no transport":         func(c *fabric.QPConfig) { c.Transport = 0 },
		"no CQ":                func(c *fabric.QPConfig) { c.SendCQ = nil },
		"CQ of another device": func(c *fabric.QPConfig) { c.RecvCQ = b.recvCQ },
		"negative size":        func(c *fabric.QPConfig) { c.MaxRecv = -1 },
		"too many sends":       func(c *fabric.QPConfig) { c.MaxSend = a.ctx.Limits().MaxQPWR + 1 },
	} {
		c := good
		change(&c)
		if _, err := a.dom.NewQP(c); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	check(t, must(a.dom.NewQP(good))(t).Close())
}
