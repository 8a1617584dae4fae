package claims

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
)

// dmaMemory maps n bytes of memory that can be registered, until the test ends.
func dmaMemory(t *testing.T, n int) []byte {
	t.Helper()
	mem := must(unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))(t)
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	return mem
}

// next waits for the next completion, and returns it whatever its status is.
func next(t *testing.T, cq fabric.CQ) fabric.Completion {
	t.Helper()
	var c [1]fabric.Completion
	poll(t, func() error {
		n, err := cq.Poll(c[:])
		if n == 0 && err == nil {
			err = errors.New("no completion")
		}
		return err
	})
	return c[0]
}

// rawEnd is one end of a channel without the messaging layer.
type rawEnd struct {
	qp  fabric.QP
	cq  fabric.CQ
	mem []byte
	reg fabric.Region
}

// newRawEnd makes an end on a device, with memory that the peer may write.
func newRawEnd(t *testing.T, dev fabric.Device, tr fabric.Transport) *rawEnd {
	t.Helper()
	e := &rawEnd{mem: dmaMemory(t, 64<<10)}
	dom := must(dev.NewDomain())(t)
	t.Cleanup(func() {
		if err := dom.Close(); err != nil {
			t.Error(err)
		}
	})
	e.reg = must(dom.Register(e.mem, fabric.LocalWrite|fabric.RemoteWrite))(t)
	e.cq = must(dom.NewCQ(64, 0))(t)
	e.qp = must(dom.NewQP(fabric.QPConfig{Transport: tr, SendCQ: e.cq, RecvCQ: e.cq, MaxSend: 16, MaxRecv: 16}))(t)
	return e
}

// send posts a SEND of the first n bytes of the end's memory.
func (e *rawEnd) send(t *testing.T, id uint64, n int) {
	t.Helper()
	wr := fabric.SendWR{ID: id, Op: fabric.OpSend, Flags: fabric.Signaled, Addr: e.reg.Addr(), Len: uint32(n),
		LKey: e.reg.LKey()}
	if _, err := e.qp.PostSend([]fabric.SendWR{wr}); err != nil {
		t.Fatal(err)
	}
}

// receive posts a receive into the second half of the end's memory.
func (e *rawEnd) receive(t *testing.T, id uint64) {
	t.Helper()
	half := uint32(len(e.mem) / 2)
	wr := fabric.RecvWR{ID: id, Addr: e.reg.Addr() + uint64(half), Len: half, LKey: e.reg.LKey()}
	if _, err := e.qp.PostRecv([]fabric.RecvWR{wr}); err != nil {
		t.Fatal(err)
	}
}

func (e *rawEnd) connect(t *testing.T, to *rawEnd) {
	t.Helper()
	if err := e.qp.Connect(to.qp.Address(), fabric.Timing{}); err != nil {
		t.Fatal(err)
	}
}

func TestChannelAttributes(t *testing.T)     { channelAttributes(t, fabricOf{open: memory}) }
func TestRDMAChannelAttributes(t *testing.T) { channelAttributes(t, fabricOf{open: softRoCE}) }

// channelAttributes tests the guarantees of an acknowledged, an unacknowledged and a connected
// channel. A request on an acknowledged channel completes only after the peer's acknowledgement, on
// an unacknowledged one without it, and a message arrives only at the queue pair of the connection.
func channelAttributes(t *testing.T, on fabricOf) {
	t.Run("acknowledged", func(t *testing.T) {
		_, devs := openDevices(t, on)
		a, b := newRawEnd(t, devs[hostSide], fabric.RC), newRawEnd(t, devs[unitSide], fabric.RC)
		b.receive(t, 2)
		a.connect(t, b)
		a.send(t, 1, 100) // the other end acknowledges only after it is connected
		var c [1]fabric.Completion
		for range 1000 {
			if n, err := a.cq.Poll(c[:]); n != 0 || err != nil {
				t.Fatalf("a descriptor completed without an acknowledgement: %+v, %v", c[0], err)
			}
		}
		b.connect(t, a)
		if c := next(t, b.cq); c.Err() != nil || c.ID != 2 || c.Len != 100 {
			t.Errorf("the message arrived as %+v", c)
		}
		if c := next(t, a.cq); c.Err() != nil || c.ID != 1 {
			t.Errorf("the descriptor completed as %+v", c)
		}
	})
	t.Run("unacknowledged", func(t *testing.T) {
		_, devs := openDevices(t, on)
		a, b := newRawEnd(t, devs[hostSide], fabric.UC), newRawEnd(t, devs[unitSide], fabric.UC)
		b.receive(t, 2)
		a.connect(t, b)
		a.send(t, 1, 100) // the other end is not connected: the message is lost
		if c := next(t, a.cq); c.Err() != nil || c.ID != 1 {
			t.Errorf("the descriptor completed as %+v", c)
		}
		var c [1]fabric.Completion
		if n, err := b.cq.Poll(c[:]); n != 0 || err != nil {
			t.Errorf("it arrived all the same: %+v, %v", c[0], err)
		}
	})
	t.Run("connected", func(t *testing.T) {
		for name, tr := range map[string]fabric.Transport{"RC": fabric.RC, "UC": fabric.UC} {
			_, devs := openDevices(t, on)
			var a, b [2]*rawEnd
			for i := range a {
				a[i], b[i] = newRawEnd(t, devs[hostSide], tr), newRawEnd(t, devs[unitSide], tr)
				a[i].connect(t, b[i])
				b[i].connect(t, a[i])
				b[i].receive(t, 7)
			}
			a[1].send(t, 1, 10)
			if c := next(t, b[1].cq); c.Err() != nil || c.Len != 10 {
				t.Errorf("%s: the message arrived as %+v", name, c)
			}
			var c [1]fabric.Completion
			if n, err := b[0].cq.Poll(c[:]); n != 0 || err != nil {
				t.Errorf("%s: the other channel got %+v, %v", name, c[0], err)
			}
		}
	})
}
