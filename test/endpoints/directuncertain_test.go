package endpoints

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/vnet"
)

// TestDirectPathUncertain lets a direct connection fail at the first of several frames. Frames
// that were not sent by then have to go through the I/O unit, in order. Frames that do not arrive
// must be among those that the sender counts as uncertain or lost.
func TestDirectPathUncertain(t *testing.T) {
	w := newWorld(t)
	w.unit(directly)
	a, ha, _ := w.host("alpha", makesDirect)
	b, hb, _ := w.host("beta", makesDirect)
	a.up(t)
	b.up(t)
	toUnit := map[uint32]bool{}
	for _, q := range w.fabric.QueuePairs("alpha") {
		toUnit[q.Num] = true
	}
	w.newLANSwitch(a.mac, b.mac)
	s := newStream(t, a, b)
	testenv.Eventually(t, func() bool { return established(ha) && established(hb) }, "a direct connection")
	s.moves(t, 1000)
	s.pause(t)
	s.cancel()
	s.resume()
	s.stop()
	ended := func(h *host.Host) uint64 { return h.Status().Direct.Total.Ended }
	endedA, endedB := ended(ha), ended(hb) // failed attempts, on a busy machine

	var failed atomic.Bool
	w.fabric.OnSend("alpha", func(qpn uint32, wr fabric.SendWR) fabric.Status {
		if toUnit[qpn] || wr.Op != fabric.OpWriteImm { // keep-alives go on
			return fabric.StatusSuccess
		}
		failed.Store(true)
		return fabric.StatusRetryExcErr
	})
	const frames = 20
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	send := func(n uint64) {
		if err := a.wire.Send(ctx, numbered(t, a, b, n)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range uint64(frames) {
		send(n)
	}
	testenv.Eventually(t, func() bool { return ended(ha) > endedA && ended(hb) > endedB },
		"the end of the direct connection")
	w.fabric.OnSend("alpha", nil)
	send(frames) // behind all others, whichever path it takes
	came := uint64(0)
	for next := uint64(0); next <= frames; came++ {
		f, err := b.wire.Receive(ctx, make([]byte, vnet.MaxFrame))
		if err != nil {
			t.Fatalf("%d frames came: %v", came, err)
		}
		n := binary.BigEndian.Uint64(f[vnet.HdrLen+14:])
		if n < next {
			t.Fatalf("frame %d came behind frame %d", n, next-1)
		}
		next = n + 1
	}
	sender, receiver := ha.Status().Direct.Total, hb.Status().Direct.Total
	missing := frames + 1 - came
	if !failed.Load() || missing == 0 || missing > sender.Uncertain+sender.Lost {
		t.Errorf("%d of %d frames have not come: %+v", missing, frames+1, sender)
	}
	if sender.OutFrames-receiver.InFrames > sender.Uncertain {
		t.Errorf("sent %+v\ntaken %+v", sender, receiver)
	}
	if receiver.Uncertain > 0 || receiver.Lost > 0 {
		t.Errorf("a host that sent nothing: %+v", receiver)
	}
}
