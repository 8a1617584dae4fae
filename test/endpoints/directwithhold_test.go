package endpoints

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// counted receives the numbered frames at a host, and expects them in order.
type counted struct{ seen atomic.Uint64 }

func newCounted(t *testing.T, ctx context.Context, workers *sync.WaitGroup, d *netdev) *counted {
	c := &counted{}
	workers.Go(func() {
		buf := make([]byte, 1<<17)
		for {
			f, err := d.wire.Receive(ctx, buf)
			if err != nil {
				return
			}
			if n := binary.BigEndian.Uint64(f[vnet.HdrLen+14:]); n != c.seen.Load()+1 {
				t.Errorf("frame %d came, %d was next", n, c.seen.Load()+1)
			}
			c.seen.Add(1)
		}
	})
	return c
}

// TestDirectPathUnconfirmed has a peer that gets the probes and confirms them, and no markers,
// however long that lasts. It expects all frames to another host to get through while frames to
// the peer wait, the end of the connection when there is no room for more, and no lost frame.
func TestDirectPathUnconfirmed(t *testing.T) {
	w := newWorld(t)
	w.unit(directly)
	patient := func(c *host.Config) { c.Direct.Answer = time.Hour }
	a, ha, _ := w.host("alpha", makesDirect, patient)
	b, _, _ := w.host("beta", makesDirect, patient)
	c, _, _ := w.host("gamma")
	for _, d := range []*netdev{a, b, c} {
		d.up(t)
	}
	var mu sync.Mutex
	probes := make(map[string]protocol.MarkerNonce) // by sender
	w.newLosingSwitch(func(f []byte) bool {
		m, _ := protocol.DecodeMarker(f)
		mu.Lock()
		defer mu.Unlock()
		from := protocol.MAC(f[vnet.HdrLen+6:]).String()
		if _, ok := probes[from]; !ok {
			probes[from] = m.Nonce
		}
		return probes[from] != m.Nonce
	}, a.mac, b.mac, c.mac)
	ctx, cancel := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()
	atB, atC := newCounted(t, ctx, &workers, b), newCounted(t, ctx, &workers, c)
	large := from(t, a.mac, frame(1500, 1))
	copy(large[vnet.HdrLen:], numbered(t, a, b, 0)[vnet.HdrLen:vnet.HdrLen+14])
	var toB, toC uint64
	most := uint64(0) // frames that waited
	for ended := false; !ended || toB < 2*most; ended = ended || ha.Status().Direct.Total.Ended > 0 {
		for range 50 {
			toB++
			binary.BigEndian.PutUint64(large[vnet.HdrLen+14:], toB)
			a.sends(t, large)
		}
		toC++
		a.sends(t, numbered(t, a, c, toC))
		testenv.Eventually(t, func() bool { return atC.seen.Load() == toC },
			"frame %d to another host, while %d of %d frames to the peer have arrived", toC, atB.seen.Load(), toB)
		if !ended {
			if most = max(most, toB-min(atB.seen.Load(), toB)); most > 100_000 {
				t.Fatal("the connection does not end, however many frames wait")
			}
		}
	}
	if most < 1000 {
		t.Errorf("%d frames waited at most", most)
	}
	testenv.Eventually(t, func() bool { return atB.seen.Load() == toB }, "all frames to the peer")
	if d := ha.Status().Direct; d.Total.OutFrames+d.Total.Full+d.Total.Lost+d.Total.Uncertain+d.UplinkFull > 0 {
		t.Errorf("%+v", d)
	}
}

// sends sends a frame, which must not take long.
func (d *netdev) sends(t *testing.T, f []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := d.wire.Send(ctx, f); err != nil {
		t.Fatalf("the netdevice is not read: %v", err)
	}
}

// TestDirectPathOfRevokedUnit has two hosts keep a direct connection at another I/O unit. Then the
// key of the I/O unit that has made it is revoked at one of them. It expects the end of the
// connection at both, and another one, made by the I/O unit that is trusted.
func TestDirectPathOfRevokedUnit(t *testing.T) {
	w := newWorld(t)
	grace := func(c *host.Config) { c.Direct.Grace = time.Minute }
	one := w.gateway("one", directly)
	w.unitKey = w.key()
	two := w.gateway("two", directly)
	w.card = one.card
	keys := []string{one.unitKey.Fingerprint().String(), two.unitKey.Fingerprint().String()}
	securities := make(map[string]*session.Security)
	p := w.pair(grace, func(c *host.Config) {
		c.IOUnits, c.Security = addrs(one, two), w.trusting(w.hostKey, keys...)
		securities[c.Name] = c.Security
	})
	p.direct()
	id := p.id()
	one.cut()
	with(t, p.ha, two)
	with(t, p.hb, two)
	testenv.Eventually(t, func() bool { return two.unit.Status().Direct.Kept == 1 }, "the other I/O unit's permission")
	p.lan.stop()
	w.card = two.card
	p.lan = w.newLANSwitch(p.a.mac, p.b.mac)
	if n, err := securities["alpha"].Update(w.trusting(w.hostKey, keys[1])); err != nil || n != 0 {
		t.Fatalf("%d sessions end, %v", n, err)
	}
	gone := func(h *host.Host) bool {
		c := h.Status().Direct.Connections
		return len(c) == 0 || c[0].ID != id
	}
	testenv.Eventually(t, func() bool { return gone(p.ha) && gone(p.hb) }, "the end of the connection")
	p.there.moves(t, 1000)
	p.established()
	p.direct()
}
