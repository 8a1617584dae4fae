package fabrictest_test

import (
	"fmt"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
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
	sends    []fabric.SendWR
	receives [16]fabric.RecvWR
}

func newStream(t testing.TB, size int) *stream {
	s := &stream{net: fabrictest.New()}
	for i, name := range []string{"a", "b"} {
		dev := s.net.Device(name)
		t.Cleanup(func() { check(t, dev.Close()) })
		dom := must(dev.NewDomain())(t)
		s.mem[i] = conform.Alloc(t, size)
		s.region[i] = must(dom.Register(s.mem[i], fabric.LocalWrite|fabric.RemoteWrite))(t)
		s.cq[i] = must(dom.NewCQ(256, 0))(t)
		s.qp[i] = must(dom.NewQP(fabric.QPConfig{
			Transport: fabric.RC, SendCQ: s.cq[i], RecvCQ: s.cq[i], MaxSend: 64, MaxRecv: 64, MaxInline: 64, MaxSGE: 4,
		}))(t)
	}
	check(t, s.qp[0].Connect(s.qp[1].Address(), fabric.Timing{}))
	check(t, s.qp[1].Connect(s.qp[0].Address(), fabric.Timing{}))
	s.batch(size)
	return s
}

// batch sets the sends to one write for each receive, with pieces of these sizes.
func (s *stream) batch(sizes ...int) {
	s.sends = nil
	for i := range s.receives {
		for j, size := range sizes {
			wr := fabric.SendWR{Addr: s.region[0].Addr(), LKey: s.region[0].LKey(), Len: uint32(size)}
			if j == 0 {
				wr.Op, wr.RemoteAddr, wr.RKey = fabric.OpWriteImm, s.region[1].Addr(), s.region[1].RKey()
				if i == len(s.receives)-1 {
					wr.Flags = fabric.Signaled
				}
			}
			if j != len(sizes)-1 {
				wr.Flags |= fabric.More
			}
			s.sends = append(s.sends, wr)
		}
	}
}

// round posts the receives and the sends, and polls their completions.
func (s *stream) round(t testing.TB) {
	if _, err := s.qp[1].PostRecv(s.receives[:]); err != nil {
		t.Fatal(err)
	}
	if _, err := s.qp[0].PostSend(s.sends); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1, len(s.receives)} {
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
	for _, sizes := range [][]int{{64}, {16, 0, 40, 8}} {
		s.batch(sizes...)
		if n := testing.AllocsPerRun(100, func() { s.round(t) }); n != 0 {
			t.Errorf("a batch of writes in pieces of %v bytes allocates %v times", sizes, n)
		}
		for i := range s.sends {
			s.sends[i].Flags |= fabric.Inline
		}
		if n := testing.AllocsPerRun(100, func() { s.round(t) }); n != 0 {
			t.Errorf("a batch of inline writes in pieces of %v bytes allocates %v times", sizes, n)
		}
	}
}

func BenchmarkWriteImm(b *testing.B) {
	for _, size := range []int{64, 1500, 65536} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := newStream(b, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for i := 0; i < b.N; i += len(s.receives) {
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
