package hostiletest

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
)

// late is a device that delivers late. While holding is set, it carries out work requests on data
// channels only after release. The control channel, which is the first queue pair made, is not
// delayed.
type late struct {
	fabric.Device

	mu      sync.Mutex // guards the fields below
	holding bool
	made    int
	held    []heldBatch
}

// heldBatch has the work requests posted by one call.
type heldBatch struct {
	qp  fabric.QP
	wrs []fabric.SendWR
}

type lateDomain struct {
	fabric.Domain
	d *late
}

type lateQP struct {
	fabric.QP
	d *late
}

// NewDomain implements fabric.Device.
func (d *late) NewDomain() (fabric.Domain, error) {
	dom, err := d.Device.NewDomain()
	return lateDomain{dom, d}, err
}

// NewQP implements fabric.Domain.
func (l lateDomain) NewQP(cfg fabric.QPConfig) (fabric.QP, error) {
	q, err := l.Domain.NewQP(cfg)
	if l.d.made++; l.d.made == 1 || err != nil {
		return q, err
	}
	return lateQP{q, l.d}, nil
}

// PostSend implements fabric.QP.
func (q lateQP) PostSend(wrs []fabric.SendWR) (int, error) {
	q.d.mu.Lock()
	defer q.d.mu.Unlock()
	if !q.d.holding {
		return q.QP.PostSend(wrs)
	}
	q.d.held = append(q.d.held, heldBatch{q.QP, slices.Clone(wrs)})
	return len(wrs), nil
}

// hold holds back all work requests posted from now on.
func (d *late) hold() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holding = true
}

// release posts the work requests held back, and holds back no more.
func (d *late) release() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holding = false
	for _, b := range d.held {
		if _, err := b.qp.PostSend(b.wrs); err != nil {
			return err
		}
	}
	d.held = nil
	return nil
}

// counts returns how many transfers, and how many writes of zero bytes, are held back.
func (d *late) counts() (transfers, drains int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.held {
		for i := range b.wrs {
			if b.wrs[i].Len > 0 {
				transfers++
			} else {
				drains++
			}
		}
	}
	return transfers, drains
}

// drain tests flushes of pools to which transfers are on their way, or have arrived and were not
// handled, in the modes with RDMA writes. It calls newFabric once for each test.
func drain(t *testing.T, newFabric func(t *testing.T) twoDevices) {
	for _, mode := range writing {
		t.Run(fmt.Sprintf("%s, on their way", mode), func(t *testing.T) { drainSender(t, newFabric(t), mode) })
		t.Run(fmt.Sprintf("%s, not looked at", mode), func(t *testing.T) { drainReceiver(t, newFabric(t), mode) })
	}
}

// drained returns a session, and a peer that keeps to the protocol.
func drained(t *testing.T, f twoDevices, cfg messaging.Config) (*victim, *Peer) {
	testenv.NoLeaks(t)
	cfg.NoPack, cfg.MaxInline = true, -1
	v := newVictim(t, cfg, nil)
	p := NewPeer(t, PeerConfig{Device: f.Attacker, Mode: cfg.Mode, Channels: 1, Timing: f.Timing})
	v.connect(p, 1)
	p.Watch(v.conn.Done(), v.conn.Err)
	return v, p
}

// drainSender takes a pool back while the session's writes to it are on their way. The reply must
// arrive after all of them have arrived and are indicated.
func drainSender(t *testing.T, f twoDevices, mode protocol.Mode) {
	const transfers = ownElements - 1
	d := &late{Device: f.Victim}
	cfg := small(d, mode, f.Timing)
	cfg.SendSlots, cfg.SignalEvery = 16, 8 // so that no transfer is signaled by chance
	v, p := drained(t, f, cfg)
	d.hold()
	p.send(p.lend(func(*protocol.Pool) {}))
	for i := range transfers {
		sent := frame(1000)
		sent[len(sent)-1] = byte(i + 1)
		v.sendFrame(p.ctx, sent)
	}
	v.until(p.ctx, func() bool {
		n, _ := d.counts()
		return n == transfers
	})
	p.flush(3)
	// When the session answers this, it has received the flush. It then posts a signaled request, if
	// the last transfer is not signaled.
	p.send(protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{Type: protocol.CfgKeepAlive}))
	early := func() bool {
		return slices.ContainsFunc(p.Inbox, func(msg []byte) bool {
			h, err := protocol.DecodeHeader(msg)
			return err == nil && h.Function == protocol.FuncBufferPoolFlushReply
		})
	}
	v.until(p.ctx, func() bool {
		p.poll()
		_, drains := d.counts()
		return early() || len(p.Inbox) > 0 && (drains > 0 || mode.Indicated())
	})
	if early() {
		t.Errorf("the flush was answered while %d transfers were on their way", transfers)
	}
	p.ok(d.release())
	arrived, indicated := 0, 0
	for replied := false; !replied; {
		p.until(p.session, func() bool { return len(p.Inbox) > 0 }, "the reply to the flush")
		msg := p.Inbox[0]
		p.Inbox = p.Inbox[1:]
		arrived = p.Arrived
		h, err := protocol.DecodeHeader(msg)
		p.ok(err)
		switch h.Function {
		case protocol.FuncBufferRDMAIndicate:
			m, err := protocol.DecodeBufferRDMAIndicate(msg)
			p.ok(err)
			indicated += m.Len()
		case protocol.FuncBufferPoolFlushReply:
			replied = true
		default:
		}
	}
	written := 0
	for i := range ownElements {
		if last := p.Mem[p.LentAt()+i*ownElement+999]; last != 0 {
			written++
		}
	}
	if n := arrived + indicated; written != transfers || n != transfers {
		t.Errorf("of %d transfers %d were written, %d indicated, when the flush was answered", transfers, written, n)
	}
	if err := v.conn.Err(); err != nil {
		t.Error(err)
	}
}

// drainReceiver gives a pool back whose last frames have arrived while the session's port blocked the
// receiver. The frames must be delivered before the pool ends.
func drainReceiver(t *testing.T, f twoDevices, mode protocol.Mode) {
	const frames = 4
	cfg := small(f.Victim, mode, f.Timing)
	// The receiver handles one completion before it looks for other events.
	cfg.Handlers = []cq.Handler{{Number: 1, Budget: 1}}
	v, p := drained(t, f, cfg)
	v.port.hold()
	p.transfer(0, 0, frame(100))
	v.until(p.ctx, func() bool { return v.port.delivered.Load() == 1 })
	for i := 1; i < frames; i++ {
		p.transfer(0, i, frame(100))
	}
	p.flush(p.Pools[0].Ref | protocol.FlushGiveBack)
	p.Alive() // the session has received the flush
	v.release()
	p.message(protocol.FuncBufferPoolFlushReply)
	p.Alive()
	if n := v.port.delivered.Load(); n != frames {
		t.Errorf("%d of %d frames were delivered before the pool had gone", n, frames)
	}
	if err := v.conn.Err(); err != nil {
		t.Error(err)
	}
}
