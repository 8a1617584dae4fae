package endpoints

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// TestModes moves frames in each transfer mode, with more pools permitted than there are at the
// beginning.
func TestModes(t *testing.T) {
	for _, mode := range protocol.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t)
			w.unit(func(c *iounit.Config) { c.Messaging.MaxPools = 8 })
			d, h, _ := w.host("alpha", func(c *host.Config) { c.Modes, c.Messaging.MaxPools = []protocol.Mode{mode}, 7 })
			d.up(t)
			w.both(d)
			s := h.Status()
			if s.IOUnit.Mode != mode || s.Traffic.Mode != mode || s.Traffic.Channels[0].TxFrames == 0 {
				t.Errorf("status: %+v", s)
			}
		})
	}
}

// TestKeysBehindBinds expects the endpoints to agree on sending keys behind binds. When the host
// requests a pool, because a frame fits into no other, the bind of this pool has to be followed by
// a message with its key.
func TestKeysBehindBinds(t *testing.T) {
	w := newWorld(t)
	w.unit(func(c *iounit.Config) {
		c.Messaging.Pools, c.Messaging.MaxPools = []messaging.PoolConfig{{ElementSize: 2048, Elements: 64}}, 2
	})
	var mu sync.Mutex
	var posted []fabric.SendWR
	w.fabric.OnSend("unit", func(_ uint32, wr fabric.SendWR) fabric.Status {
		if wr.Op == fabric.OpBind || wr.Op == fabric.OpSendImm {
			mu.Lock()
			defer mu.Unlock()
			posted = append(posted, wr)
		}
		return fabric.StatusSuccess
	})
	d, _, _ := w.host("alpha")
	d.up(t)
	long := from(t, d.mac, frame(5000, 7))
	h := vnet.Header{Flags: vnet.FlagNeedsCsum, GSOType: vnet.GSOTCPv4, HdrLen: 54, GSOSize: 1460, CsumStart: 34,
		CsumOffset: 16}
	h.Encode(long)
	long[vnet.HdrLen+14], long[vnet.HdrLen+14+9], long[vnet.HdrLen+34+12] = 0x45, 6, 5<<4
	if err := d.wire.Send(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(posted) >= 3
	}, "a pool for long frames")
	// The frame that caused the request is dropped, unless the pool is there in time.
	next := from(t, d.mac, frame(60, 1))
	if err := d.wire.Send(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	for got, buf := []byte(nil), make([]byte, 1<<16); !bytes.Equal(got, next); {
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
		defer cancel()
		var err error
		if got, err = w.card.wire(d.mac).Receive(ctx, buf); err != nil {
			t.Fatal(err)
		}
	}
	w.both(d)
	mu.Lock()
	defer mu.Unlock()
	if b, k := posted[1], posted[2]; len(posted) != 3 || b.Op != fabric.OpBind || k.Op != fabric.OpSendImm ||
		k.Imm != b.RKey {
		t.Errorf("%+v", posted)
	}
}

// TestModeChosen expects the I/O unit to choose the mode from the host's list.
func TestModeChosen(t *testing.T) {
	w := newWorld(t)
	w.unit(func(c *iounit.Config) { c.Modes = []protocol.Mode{protocol.ModeImm, protocol.ModeSend} })
	d, h, _ := w.host("alpha", func(c *host.Config) {
		c.Modes = []protocol.Mode{protocol.ModeSendUC, protocol.ModeSend, protocol.ModeImm}
	})
	d.up(t)
	w.both(d)
	if m := h.Status().IOUnit.Mode; m != protocol.ModeSend {
		t.Errorf("mode %s", m)
	}
	_, _, r := w.host("beta", func(c *host.Config) { c.Modes = []protocol.Mode{protocol.ModeIndicate} })
	select {
	case err := <-r.done:
		r.once.Do(func() {})
		var refused *session.RefusedError
		if !errors.As(err, &refused) || refused.Code != session.CodeMode {
			t.Errorf("a mode that the I/O unit does not allow: %v", err)
		}
	case <-time.After(testenv.Patience):
		t.Fatal("the host goes on")
	}
}
