package messaging

import (
	"fmt"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// channel is what a data channel consists of. The sender and the receiver each
// own the parts that their names say.
type channel struct {
	number  int // 1 to N; the control channel is 0
	vector  int // of the completion queues
	qp      fabric.QP
	sendCQ  fabric.CQ
	recvCQ  fabric.CQ
	tx      *sender
	rx      *receiver
	peerQPN uint32

	moderated bool // sendCQ and recvCQ
	slotSize  int  // bytes
	latency   bool // it is the latency channel
}

// sqDepth is how many writes a data channel can have outstanding: as many as
// there are slots, and as many inline ones again.
//
// Windows of one-touch pools are bound and invalidated there as well.
func sqDepth(cfg *Config) int {
	n := 2 * cfg.SendSlots
	if cfg.Protection == ProtectOneTouch {
		n += 2 * bufpool.MaxBatch
	}
	return n
}

// newChannel makes data channel number with its first pools, and posts its
// receives.
func (c *Conn) newChannel(number int) (ch *channel, err error) {
	cfg := c.cfg.channel(number)
	count, slotSize := c.cfg.slots(number)
	ch = &channel{number: number, vector: c.handlers.vector(number), slotSize: slotSize, latency: c.cfg.isLatency(number)}

	slots, err := c.memory.get(count*slotSize, true)
	if err != nil {
		return nil, err
	}
	mem := slots.Bytes()[:count*slotSize]
	slotRegion, err := c.domain.Register(mem, 0)
	if err != nil {
		return nil, fmt.Errorf("register %d send slots: %w", count, err)
	}

	if ch.sendCQ, err = c.domain.NewCQ(sqDepth(cfg)+2, ch.vector); err != nil {
		return nil, err
	}
	if ch.recvCQ, err = c.domain.NewCQ(cfg.receives()+1, ch.vector); err != nil {
		return nil, err
	}
	if ch.moderated, err = cfg.Moderation.apply(ch.sendCQ, ch.recvCQ); err != nil {
		return nil, err
	}
	transport := fabric.RC
	if cfg.Mode == protocol.ModeSendUC {
		transport = fabric.UC
	}
	ch.qp, err = c.domain.NewQP(fabric.QPConfig{
		Transport: transport,
		SendCQ:    ch.sendCQ, RecvCQ: ch.recvCQ,
		TrafficClass: cfg.TrafficClass, ServiceLevel: cfg.ServiceLevel,
		MaxSend: sqDepth(cfg) + 1, MaxRecv: cfg.receives(), MaxInline: cfg.MaxInline, MaxSGE: maxPieces(cfg),
	})
	if err != nil {
		return nil, err
	}
	if ch.tx, err = newSender(c, ch, bufpool.NewSlots(mem, slotSize), slotRegion); err != nil {
		return nil, err
	}
	if ch.rx, err = newReceiver(c, ch); err != nil {
		return nil, err
	}
	for _, p := range cfg.Pools {
		l, err := c.pools.first(ch, p)
		if err != nil {
			return nil, err
		}
		if err := ch.rx.adopt(l); err != nil {
			return nil, err
		}
	}
	return ch, ch.rx.post(cfg.furtherReceives())
}

// notice is a completion queue whose worker asks for an event before it sleeps.
// One that has woken has to come back here before it sleeps again: the event may
// be that of a completion that it had found before, and no other one comes until
// it is asked for.
type notice struct {
	cq        fabric.CQ
	solicited bool
	armed     bool // once at least
}

// arm asks for an event, after it has read the one that was asked for before,
// if that has come. If not it may still be on its way, unseen, when the worker
// begins to wait; so another one is asked for in any case. There are never more
// than two unread, because one is read for each that is asked for.
func (n *notice) arm() error {
	if n.armed {
		if _, err := n.cq.ReadEvent(); err != nil {
			return err
		}
	}
	n.armed = true
	return n.cq.Arm(n.solicited)
}
