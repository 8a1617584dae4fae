//go:build cgo

package verbs_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
)

func newWindow(t *testing.T, e *end) fabric.Window {
	t.Helper()
	if !e.ctx.Limits().Windows {
		testenv.Missing(t, "rdma", "%s has no type-2 memory windows", e.ctx.Name())
	}
	return must(e.dom.NewWindow())(t)
}

// binding is a bind of w to the start of the end's region, for remote write.
func (e *end) binding(w fabric.Window, id uint64, f fabric.Flags) fabric.BindWR {
	return fabric.BindWR{
		ID: id, Window: w, Region: e.mr, Addr: e.mr.Addr(), Length: 4096, Access: fabric.RemoteWrite, Flags: f,
	}
}

func bind(t *testing.T, e *end, w fabric.Window) uint32 {
	t.Helper()
	key := must(e.qp.Bind(e.binding(w, 1, fabric.Signaled)))(t)
	c := pollOK(t, e.sendCQ, 1)[0]
	if c.Op != fabric.OpBind || c.ID != 1 || key != w.RKey() || !w.Bound() {
		t.Fatalf("bound with %+v, key %#x, window %#x, bound %v", c, key, w.RKey(), w.Bound())
	}
	return key
}

// write posts an RDMA write of 8 bytes from a to b with this remote key of b, and returns the
// completion.
func write(t *testing.T, a, b *end, key uint32) fabric.Completion {
	t.Helper()
	postSend(t, a.qp, fabric.SendWR{
		Op: fabric.OpWrite, Flags: fabric.Signaled, Addr: a.mr.Addr(), Len: 8, LKey: a.mr.LKey(), RemoteAddr: b.mr.Addr(),
		RKey: key,
	})
	return poll(t, a.sendCQ, 1)[0]
}

func TestRDMAWindow(t *testing.T) {
	a, b := newPair(t, fabric.RC)
	w := newWindow(t, b)
	if w.Bound() {
		t.Fatal("a new window is bound")
	}
	if err := b.qp.Unbind(w, 0, 0); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("unbinding a free window: %v", err)
	}
	key := bind(t, b, w)
	wantStatus(t, write(t, a, b, key), fabric.StatusSuccess)
	if _, err := b.qp.Bind(b.binding(w, 0, 0)); !errors.Is(err, syscall.EBUSY) {
		t.Fatalf("binding a bound window: %v", err)
	}
	if err := b.mr.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Fatalf("closing a region under a window: %v", err)
	}

	check(t, b.qp.Unbind(w, 2, fabric.Signaled))
	if c := pollOK(t, b.sendCQ, 1)[0]; c.Op != fabric.OpLocalInv || c.ID != 2 || w.Bound() {
		t.Fatalf("unbound with %+v, bound %v", c, w.Bound())
	}
	if err := b.qp.Unbind(w, 0, 0); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("unbinding twice: %v", err)
	}
	if again := bind(t, b, w); again == key {
		t.Fatalf("bound again with the same key %#x", key)
	}
	wantStatus(t, write(t, a, b, key), fabric.StatusRemAccessErr)
}

// TestRDMALocalInvWorkRequest posts LOCAL_INV as a work request, for which the rules of
// Unbind hold. It expects a second LOCAL_INV with the same key to be refused: this would
// crash a machine with Soft-RoCE.
func TestRDMALocalInvWorkRequest(t *testing.T) {
	a, b := newPair(t, fabric.RC)
	w := newWindow(t, b)
	key := bind(t, b, w)
	send := fabric.SendWR{Op: fabric.OpWrite, Addr: b.mr.Addr(), Len: 8, LKey: b.mr.LKey(), RemoteAddr: a.mr.Addr(),
		RKey: a.mr.RKey()}
	inv := fabric.SendWR{ID: 5, Op: fabric.OpLocalInv, RKey: key}
	last := send
	last.ID, last.Flags = 6, fabric.Signaled
	postSend(t, b.qp, send, inv, last)
	if c := pollOK(t, b.sendCQ, 1)[0]; c.ID != 6 || w.Bound() {
		t.Fatalf("completion %+v, bound %v", c, w.Bound())
	}
	if n, err := b.qp.PostSend([]fabric.SendWR{send, inv, send}); n != 1 || !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("second invalidation: %d posted, %v", n, err)
	}
	wantStatus(t, write(t, b, a, a.mr.RKey()), fabric.StatusSuccess)
}

func TestRDMASendWithInvalidate(t *testing.T) {
	a, b := newPair(t, fabric.RC)
	w := newWindow(t, b)
	key := bind(t, b, w)
	postRecv(t, b.qp, fabric.RecvWR{Addr: b.mr.Addr() + 8192, Len: 64, LKey: b.mr.LKey()})
	postSend(t, a.qp, fabric.SendWR{
		Op: fabric.OpSendInv, Flags: fabric.Signaled, Addr: a.mr.Addr(), Len: 8, LKey: a.mr.LKey(), RKey: key,
	})
	pollOK(t, a.sendCQ, 1)
	c := pollOK(t, b.recvCQ, 1)[0]
	if c.Op != fabric.OpRecv || c.Flags != fabric.WithInv || c.InvKey != key {
		t.Fatalf("receive completion %+v", c)
	}
	w.Invalidated()
	if w.Bound() {
		t.Fatal("still bound")
	}
	w.Invalidated()
	check(t, b.mr.Close())
	wantStatus(t, write(t, a, b, key), fabric.StatusRemAccessErr)
}

func TestRDMABindRange(t *testing.T) {
	_, b := newPair(t, fabric.RC)
	w := newWindow(t, b)
	for _, r := range []struct {
		addr uint64
		n    int
	}{
		{b.mr.Addr() - 1, 1}, {b.mr.Addr(), 0}, {b.mr.Addr(), -1}, {b.mr.Addr(), memLen + 1},
		{b.mr.Addr() + memLen, 1}, {b.mr.Addr() + memLen - 8, 9}, {^uint64(0), 1},
	} {
		wr := b.binding(w, 0, 0)
		wr.Addr, wr.Length = r.addr, r.n
		if _, err := b.qp.Bind(wr); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("bind of %d bytes at %#x: %v", r.n, r.addr, err)
		}
	}
	check(t, w.Close())
	check(t, w.Close())
	if _, err := b.qp.Bind(b.binding(w, 0, 0)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("bind of a closed window: %v", err)
	}
}

// TestRDMAWindowAcrossQueuePairs expects a window to remain usable when the queue pair to which it
// was bound has been closed or reset.
func TestRDMAWindowAcrossQueuePairs(t *testing.T) {
	for _, end := range []string{"close", "reset"} {
		t.Run(end, func(t *testing.T) {
			a, b := newPair(t, fabric.RC)
			w := newWindow(t, b)
			for range 3 {
				key := bind(t, b, w)
				wantStatus(t, write(t, a, b, key), fabric.StatusSuccess)
				if end == "close" {
					check(t, b.qp.Close())
					check(t, a.qp.Close())
				} else {
					check(t, b.qp.Reset())
				}
				if w.Bound() {
					t.Fatal("bound to a queue pair that is gone")
				}
				a.qp, b.qp = a.newQP(t, fabric.RC), b.newQP(t, fabric.RC)
				connect(t, a.qp, b.qp)
			}
			check(t, b.mr.Close())
		})
	}
}

func TestRDMAWindowOfAnotherDomain(t *testing.T) {
	a, b := newPair(t, fabric.RC)
	w := newWindow(t, a)
	if _, err := b.qp.Bind(b.binding(w, 0, 0)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("window of another domain: %v", err)
	}
	if _, err := b.qp.Bind(a.binding(newWindow(t, b), 0, 0)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("region of another domain: %v", err)
	}
}

// TestRDMAWindowOnUC expects LOCAL_INV to be refused on a device on which LOCAL_INV would end the
// connection. There, closing the window invalidates the key.
func TestRDMAWindowOnUC(t *testing.T) {
	a, b := newPair(t, fabric.UC)
	w := newWindow(t, b)
	bind(t, b, w)
	if b.ctx.Driver() == "rdma_rxe" {
		if err := b.qp.Unbind(w, 0, 0); !errors.Is(err, fabric.ErrUnsupported) {
			t.Errorf("unbind: %v", err)
		}
		if _, err := b.qp.PostSend([]fabric.SendWR{{Op: fabric.OpLocalInv, RKey: w.RKey()}}); !errors.Is(err,
			fabric.ErrUnsupported) {
			t.Errorf("LOCAL_INV: %v", err)
		}
	}
	check(t, w.Close())
	wantStatus(t, write(t, b, a, a.mr.RKey()), fabric.StatusSuccess)
	check(t, b.mr.Close())
}
