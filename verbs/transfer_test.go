//go:build cgo

package verbs_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/verbs"
)

var transports = []struct {
	name string
	t    fabric.Transport
}{{"RC", fabric.RC}, {"UC", fabric.UC}}

func TestRDMAWriteImm(t *testing.T) {
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			a, b := newPair(t, tr.t)
			for i, n := range []int{64, 0, 1, 4096, 65536, memLen} {
				imm := 0xabcd0000 + uint32(i)
				for j := range a.mem {
					a.mem[j] = byte(j*7 + i)
				}
				clear(b.mem)
				postRecv(t, b.qp, fabric.RecvWR{ID: uint64(100 + i)})
				postSend(t, a.qp, fabric.SendWR{
					ID: uint64(i), Op: fabric.OpWriteImm, Flags: fabric.Signaled, Imm: imm,
					Addr: a.mr.Addr(), Len: uint32(n), LKey: a.mr.LKey(), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(),
				})
				s, r := pollOK(t, a.sendCQ, 1)[0], pollOK(t, b.recvCQ, 1)[0]
				if s.ID != uint64(i) || s.QPN != a.qp.Num() || s.Op != fabric.OpWrite {
					t.Fatalf("send completion %+v", s)
				}
				if r.ID != uint64(100+i) || r.QPN != b.qp.Num() || r.Op != fabric.OpRecvWriteImm ||
					r.Flags&fabric.WithImm == 0 || r.Imm != imm || int(r.Len) != n {
					t.Fatalf("receive completion %+v", r)
				}
				if !bytes.Equal(a.mem[:n], b.mem[:n]) {
					t.Fatalf("%d bytes arrived changed", n)
				}
				if n < memLen && b.mem[n] != 0 {
					t.Fatalf("wrote more than %d bytes", n)
				}
			}
		})
	}
}

func TestRDMASend(t *testing.T) {
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			a, b := newPair(t, tr.t)
			copy(a.mem, "through the wire")
			postRecv(t, b.qp, fabric.RecvWR{ID: 7, Addr: b.mr.Addr() + 100, Len: 64, LKey: b.mr.LKey()})
			postSend(t, a.qp, fabric.SendWR{Op: fabric.OpSend, Flags: fabric.Signaled, Addr: a.mr.Addr(), Len: 16,
				LKey: a.mr.LKey()})
			if s := pollOK(t, a.sendCQ, 1)[0]; s.Op != fabric.OpSend {
				t.Fatalf("send completion %+v", s)
			}
			r := pollOK(t, b.recvCQ, 1)[0]
			if r.ID != 7 || r.Op != fabric.OpRecv || r.Len != 16 || r.Flags != 0 {
				t.Fatalf("receive completion %+v", r)
			}
			if got := string(b.mem[100:116]); got != "through the wire" {
				t.Fatalf("received %q", got)
			}
		})
	}
}

// TestRDMALargeBatch posts a batch that is larger than a chain of the shim. It expects the requests
// to be executed in order, and completions of the signaled requests only.
func TestRDMALargeBatch(t *testing.T) {
	const n = 200
	a, b := newPair(t, fabric.RC)
	recvs := make([]fabric.RecvWR, n)
	sends := make([]fabric.SendWR, n)
	for i := range n {
		recvs[i].ID = uint64(i)
		sends[i] = fabric.SendWR{
			ID: uint64(i), Op: fabric.OpWriteImm, Imm: uint32(i), Addr: a.mr.Addr(), Len: 8, LKey: a.mr.LKey(),
			RemoteAddr: b.mr.Addr() + uint64(8*i), RKey: b.mr.RKey(),
		}
		if i%16 == 15 || i == n-1 {
			sends[i].Flags = fabric.Signaled
		}
	}
	postRecv(t, b.qp, recvs...)
	postSend(t, a.qp, sends...)
	for i, c := range pollOK(t, b.recvCQ, n) {
		if c.ID != uint64(i) || c.Imm != uint32(i) {
			t.Fatalf("completion %d: %+v", i, c)
		}
	}
	for i, c := range pollOK(t, a.sendCQ, n/16+1) {
		if want := uint64(min(16*i+15, n-1)); c.ID != want {
			t.Fatalf("completion %d is of request %d, want %d", i, c.ID, want)
		}
	}
	if c, err := a.sendCQ.Poll(make([]fabric.Completion, 1)); c != 0 || err != nil {
		t.Fatalf("%d more completions, %v", c, err)
	}
}

func TestRDMAInline(t *testing.T) {
	a, b := newPair(t, fabric.RC)
	buf := []byte("not registered anywhere")
	postRecv(t, b.qp, fabric.RecvWR{})
	wr := fabric.SendWR{
		Op: fabric.OpWriteImm, Flags: fabric.Signaled | fabric.Inline, Addr: addrOf(buf), Len: uint32(len(buf)),
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(),
	}
	postSend(t, a.qp, wr)
	copy(buf, "overwritten at once....")
	pollOK(t, a.sendCQ, 1)
	pollOK(t, b.recvCQ, 1)
	if got := string(b.mem[:len(buf)]); got != "not registered anywhere" {
		t.Fatalf("received %q", got)
	}

	wr.Addr, wr.Len = a.mr.Addr(), 4096
	if n, err := a.qp.PostSend([]fabric.SendWR{wr}); n != 0 || !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("4096 bytes inline: %d posted, %v", n, err)
	}
}

// TestRDMAQueueFull posts more receives than the queue has room for. It expects ErrQueueFull with
// the number of posted receives, and the completions of exactly these.
func TestRDMAQueueFull(t *testing.T) {
	a, _ := newPair(t, fabric.RC)
	wrs := make([]fabric.RecvWR, 4*maxWR)
	n, err := a.qp.PostRecv(wrs)
	if !errors.Is(err, fabric.ErrQueueFull) || n < maxWR || n >= len(wrs) {
		t.Fatalf("%d receives posted, %v", n, err)
	}
	check(t, a.qp.Fail())
	for _, c := range poll(t, a.recvCQ, n) {
		wantStatus(t, c, fabric.StatusWRFlushErr)
	}
}

// TestRDMARefusedInTheMiddle expects the requests before a refused one to be posted.
func TestRDMARefusedInTheMiddle(t *testing.T) {
	for _, at := range []int{0, 3, 64, 100} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			a, b := newPair(t, fabric.RC)
			wrs := make([]fabric.SendWR, at+2)
			for i := range wrs {
				wrs[i] = fabric.SendWR{
					Op: fabric.OpWrite, Flags: fabric.Signaled, Addr: a.mr.Addr(), Len: 8, LKey: a.mr.LKey(),
					RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(),
				}
			}
			wrs[at].Op = fabric.OpBind
			n, err := a.qp.PostSend(wrs)
			if n != at || !errors.Is(err, syscall.EINVAL) {
				t.Fatalf("%d posted, %v", n, err)
			}
			if at > 0 {
				pollOK(t, a.sendCQ, at)
			}
		})
	}
}

// TestRDMALargeGather posts more requests than the shim posts at a time, each with the maximum
// number of pieces of the device. It checks the order and the bytes of the requests, and the number
// of posted requests if a request in the middle is refused.
func TestRDMALargeGather(t *testing.T) {
	const n = 100
	a, b := newPair(t, fabric.RC)
	pieces := a.ctx.Limits().MaxSGE
	fill := func(recs []fabric.SendWR, i int) {
		for j := range recs {
			off := (i*pieces + j) * 2
			recs[j] = fabric.SendWR{Addr: a.mr.Addr() + uint64(off), Len: 2, LKey: a.mr.LKey(), Flags: fabric.More}
			a.mem[off], a.mem[off+1] = byte(i), byte(j+1)
		}
		recs[len(recs)-1].Flags = 0
		recs[0].ID, recs[0].Op, recs[0].Imm = uint64(i), fabric.OpWriteImm, uint32(i)
		recs[0].RemoteAddr, recs[0].RKey = b.mr.Addr()+uint64(i*pieces*2), b.mr.RKey()
		if i%10 == 9 {
			recs[0].Flags |= fabric.Signaled
		}
	}
	wrs := make([]fabric.SendWR, n*pieces)
	for i := range n {
		fill(wrs[i*pieces:][:pieces], i)
	}
	postRecv(t, b.qp, make([]fabric.RecvWR, n)...)
	postSend(t, a.qp, wrs...)
	for i, c := range pollOK(t, b.recvCQ, n) {
		if c.Imm != uint32(i) || int(c.Len) != 2*pieces {
			t.Fatalf("completion %d: %+v", i, c)
		}
	}
	for i, c := range pollOK(t, a.sendCQ, n/10) {
		if want := uint64(10*i + 9); c.ID != want {
			t.Fatalf("completion %d is of request %d, want %d", i, c.ID, want)
		}
	}
	if used := len(wrs) * 2; !bytes.Equal(a.mem[:used], b.mem[:used]) {
		t.Fatal("bytes arrived changed")
	}
	for _, at := range []int{0, 31, 32, 33, 63, 64, 65, n - 1} {
		wrs[at*pieces].Op = fabric.OpBind
		postRecv(t, b.qp, make([]fabric.RecvWR, at)...)
		got, err := a.qp.PostSend(wrs)
		if got != at*pieces || !errors.Is(err, syscall.EINVAL) {
			t.Fatalf("request %d is refused: %d records of %d each posted, %v", at, got, pieces, err)
		}
		wrs[at*pieces].Op = fabric.OpWriteImm
		pollOK(t, b.recvCQ, at)
		pollOK(t, a.sendCQ, at/10)
	}
}

// TestRDMAInlineGivesNoPieces posts more pieces than the queue pair was made for. Queue
// pairs of Soft-RoCE with inline data would permit more pieces than requested. It expects
// an error nevertheless.
func TestRDMAInlineGivesNoPieces(t *testing.T) {
	a, b := newEnd(t, 0, fabric.RC), newEnd(t, 1, fabric.RC)
	newQP := func(e *end) *verbs.QP {
		return must(e.dom.NewQP(fabric.QPConfig{
			Transport: fabric.RC, SendCQ: e.sendCQ, RecvCQ: e.recvCQ, MaxSend: 16, MaxRecv: 16, MaxInline: 256, MaxSGE: 2,
		}))(t).(*verbs.QP)
	}
	a.qp, b.qp = newQP(a), newQP(b)
	connect(t, a.qp, b.qp)
	wrs := make([]fabric.SendWR, 3)
	for i := range wrs {
		wrs[i] = fabric.SendWR{Addr: a.mr.Addr(), Len: 8, LKey: a.mr.LKey(), Flags: fabric.More}
	}
	wrs[0].Op, wrs[0].RemoteAddr, wrs[0].RKey = fabric.OpWrite, b.mr.Addr(), b.mr.RKey()
	wrs[2].Flags = 0
	for _, f := range []fabric.Flags{0, fabric.Inline} {
		wrs[0].Flags = fabric.More | fabric.Signaled | f
		n, err := a.qp.PostSend(wrs)
		if n != 0 || !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "3 pieces") {
			t.Fatalf("flags %#x: three pieces on a queue pair for two: %d posted, %v", f, n, err)
		}
	}
	wrs[1].Flags = 0
	postSend(t, a.qp, wrs[:2]...)
	pollOK(t, a.sendCQ, 1)
}

func TestRDMAFailFlushes(t *testing.T) {
	a, b := newPair(t, fabric.RC)
	postRecv(t, a.qp, make([]fabric.RecvWR, 3)...)
	check(t, a.qp.Fail())
	for _, c := range poll(t, a.recvCQ, 3) {
		wantStatus(t, c, fabric.StatusWRFlushErr)
	}
	postSend(t, a.qp, fabric.SendWR{
		ID: 9, Op: fabric.OpWrite, Addr: a.mr.Addr(), Len: 8, LKey: a.mr.LKey(), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(),
	})
	c := poll(t, a.sendCQ, 1)[0]
	wantStatus(t, c, fabric.StatusWRFlushErr)
	if c.ID != 9 || c.QPN != a.qp.Num() {
		t.Fatalf("flushed %+v", c)
	}
	if err := c.Err(); !errors.Is(err, &fabric.WCError{Status: fabric.StatusWRFlushErr}) {
		t.Fatalf("error %v", err)
	}
}

func TestRDMAWrongKey(t *testing.T) {
	a, b := newPair(t, fabric.RC)
	postSend(t, a.qp, fabric.SendWR{
		Op: fabric.OpWrite, Addr: a.mr.Addr(), Len: 8, LKey: a.mr.LKey(), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey() ^ 0x5500,
	})
	wantStatus(t, poll(t, a.sendCQ, 1)[0], fabric.StatusRemAccessErr)
}
