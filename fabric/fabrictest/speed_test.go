package fabrictest_test

import (
	"fmt"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
)

// stream is a connected pair of queue pairs with a buffer at each end.
type stream struct {
	net      *fabrictest.Network
	qp       [2]fabric.QP
	cq       [2]fabric.CQ
	region   [2]fabric.Region
	mem      [2][]byte
	wcs      [32]fabric.Completion
	sends    [16]fabric.SendWR
	receives [16]fabric.RecvWR
}

func newStream(t testing.TB, size int) *stream {
	s := &stream{net: fabrictest.New()}
	for i, name := range []string{"a", "b"} {
		dev := s.net.Device(name)
		t.Cleanup(func() { check(t, dev.Close()) })
		dom := must(dev.NewDomain())(t)
		s.mem[i] = fabrictest.Alloc(t, size)
		s.region[i] = must(dom.Register(s.mem[i], fabric.LocalWrite|fabric.RemoteWrite))(t)
		s.cq[i] = must(dom.NewCQ(256, 0))(t)
		s.qp[i] = must(dom.NewQP(fabric.QPConfig{
			Transport: fabric.RC, SendCQ: s.cq[i], RecvCQ: s.cq[i], MaxSend: 64, MaxRecv: 64, MaxInline: 64,
		}))(t)
	}
	check(t, s.qp[0].Connect(s.qp[1].Address(), fabric.Timing{}))
	check(t, s.qp[1].Connect(s.qp[0].Address(), fabric.Timing{}))
	for i := range s.sends {
		s.sends[i] = fabric.SendWR{
			Op: fabric.OpWriteImm, Addr: s.region[0].Addr(), LKey: s.region[0].LKey(), Len: uint32(size),
			RemoteAddr: s.region[1].Addr(), RKey: s.region[1].RKey(),
		}
	}
	s.sends[len(s.sends)-1].Flags = fabric.Signaled
	return s
}

// round posts a batch, receives it and reaps its completion.
func (s *stream) round(t testing.TB) {
	if _, err := s.qp[1].PostRecv(s.receives[:]); err != nil {
		t.Fatal(err)
	}
	if _, err := s.qp[0].PostSend(s.sends[:]); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1, len(s.sends)} {
		n, err := s.cq[i].Poll(s.wcs[:])
		if n != want || err != nil {
			t.Fatalf("polled %d completions (%v), want %d", n, err, want)
		}
		for j := range s.wcs[:n] {
			if err := s.wcs[j].Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestPostAndPollDoNotAllocate(t *testing.T) {
	s := newStream(t, 64)
	if n := testing.AllocsPerRun(100, func() { s.round(t) }); n != 0 {
		t.Errorf("a batch of writes allocates %v times", n)
	}
	for i := range s.sends {
		s.sends[i].Flags |= fabric.Inline
	}
	if n := testing.AllocsPerRun(100, func() { s.round(t) }); n != 0 {
		t.Errorf("a batch of inline writes allocates %v times", n)
	}
}

func BenchmarkWriteImm(b *testing.B) {
	for _, size := range []int{64, 1500, 65536} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := newStream(b, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for i := 0; i < b.N; i += len(s.sends) {
				s.round(b)
			}
		})
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
