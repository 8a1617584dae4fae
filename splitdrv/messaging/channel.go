package messaging

import (
	"fmt"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
)

// channel is what a data channel consists of. The sender and the receiver each
// own the parts that their names say.
type channel struct {
	number  int // 1 to N; the control channel is 0
	vector  int
	qp      fabric.QP
	sendCQ  fabric.CQ
	recvCQ  fabric.CQ
	arena   *bufpool.Arena
	lent    []lentPool // ours, lent to the peer; indexed by the low bits of the reference
	tx      *sender
	rx      *receiver
	peerQPN uint32
}

// lentPool is one pool of this side with its region: a region per pool, so that
// every device bounds the peer to what it was lent.
type lentPool struct {
	ref    uint32
	region fabric.Region
	loan   *bufpool.Loan
}

// sqDepth is how many writes a data channel can have outstanding: as many as
// there are slots, and as many inline ones again.
func sqDepth(cfg *Config) int { return 2 * cfg.SendSlots }

func poolElements(cfg *Config) int {
	n := 0
	for _, p := range cfg.Pools {
		n += p.Elements
	}
	return n
}

// newChannel makes data channel number and posts its receives.
func (c *Conn) newChannel(number int) (ch *channel, err error) {
	cfg := &c.cfg
	vectors := max(cfg.Device.Limits().CompVectors, 1)
	ch = &channel{number: number, vector: number % vectors}

	slotBytes := pageUp(cfg.SendSlots * slotSize)
	size := slotBytes
	for _, p := range cfg.Pools {
		size += pageUp(p.Elements * p.ElementSize)
	}
	if ch.arena, err = bufpool.NewArena(size); err != nil {
		return nil, err
	}
	// Closing the domain closes everything else; the arena has to outlive it.
	c.arenas = append(c.arenas, ch.arena)

	mem := ch.arena.Bytes()
	slotRegion, err := c.domain.Register(mem[:slotBytes], 0)
	if err != nil {
		return nil, fmt.Errorf("register %d send slots: %w", cfg.SendSlots, err)
	}
	off := slotBytes
	for i, p := range cfg.Pools {
		n := p.Elements * p.ElementSize
		region, err := c.domain.Register(mem[off:off+n], fabric.LocalWrite|fabric.RemoteWrite)
		if err != nil {
			return nil, fmt.Errorf("register a pool of %d elements of %d bytes: %w", p.Elements, p.ElementSize, err)
		}
		ch.lent = append(ch.lent, lentPool{
			ref:    poolRef(number, i),
			region: region,
			loan:   bufpool.NewLoan(mem[off:off+n], p.ElementSize, p.Elements),
		})
		off += pageUp(n)
	}

	receives := poolElements(cfg)
	if ch.sendCQ, err = c.domain.NewCQ(sqDepth(cfg)+1, ch.vector); err != nil {
		return nil, err
	}
	if ch.recvCQ, err = c.domain.NewCQ(receives+1, ch.vector); err != nil {
		return nil, err
	}
	ch.qp, err = c.domain.NewQP(fabric.QPConfig{
		Transport: fabric.RC,
		SendCQ:    ch.sendCQ, RecvCQ: ch.recvCQ,
		MaxSend: sqDepth(cfg), MaxRecv: receives, MaxInline: cfg.MaxInline,
	})
	if err != nil {
		return nil, err
	}
	ch.tx = newSender(c, ch, bufpool.NewSlots(mem[:slotBytes], slotSize), slotRegion)
	ch.rx = newReceiver(c, ch)
	if err := ch.rx.post(receives); err != nil {
		return nil, err
	}
	if ch.tx.wake, err = newEvent(); err != nil {
		return nil, err
	}
	c.events = append(c.events, ch.tx.wake)
	if ch.rx.kick, err = newEvent(); err != nil {
		return nil, err
	}
	c.events = append(c.events, ch.rx.kick)
	return ch, nil
}

// poolRef numbers the pools of a session: MaxPoolsPerChannel for each data
// channel, so that a receiver finds the pool of an indication by its low bits.
func poolRef(channel, class int) uint32 {
	return uint32((channel-1)*MaxPoolsPerChannel + class)
}

func pageUp(n int) int { return (n + 4095) &^ 4095 }

func (ch *channel) stats() ChannelStats {
	t, r := &ch.tx.count, &ch.rx.count
	s := ChannelStats{
		TxFrames: t.frames.Load(), TxBytes: t.bytes.Load(), TxTooLong: t.tooLong.Load(), TxInvalid: t.invalid.Load(),
		TxPosts: t.posts.Load(), TxNoCredit: t.noCredit.Load(), TxNoSlot: t.noSlot.Load(),
		Solicited: t.solicited.Load(), TxSignaled: t.signaled.Load(), TxInline: t.inline.Load(),
		RxFrames: r.frames.Load(), RxBytes: r.bytes.Load(), RxDropped: r.dropped.Load(),
		RxOverMTU: r.overMTU.Load(), RxPortBusy: r.portBusy.Load(), RxWakeups: r.wakeups.Load(),
		UpdatesSent:  r.updates.Load(),
		MemoryPinned: len(ch.arena.Bytes()), CompVector: ch.vector,
		QPN: ch.qp.Num(), PeerQPN: ch.peerQPN,
	}
	for i := range ch.lent {
		s.Lent = addLedger(s.Lent, ch.lent[i].loan.Ledger())
	}
	for _, g := range *ch.tx.grants.Load() {
		s.Granted = addLedger(s.Granted, g.Ledger())
	}
	return s
}

func addLedger(a, b Ledger) Ledger {
	return Ledger{
		Elements:  a.Elements + b.Elements,
		Available: a.Available + b.Available, Out: a.Out + b.Out,
		Lent: a.Lent + b.Lent, Consumed: a.Consumed + b.Consumed, Returning: a.Returning + b.Returning,
	}
}
