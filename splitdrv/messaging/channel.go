package messaging

import (
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// channel is a data channel. The sender and the receiver each own the parts with their names.
type channel struct {
	dataQP
	tx      *sender
	rx      *receiver
	control *control // which the channel polls, with Config.Poll
}

// newChannel makes the data channel with this number, without pools.
func newChannel(c *shared, number int, control *control, pools *poolManager) (ch *channel, err error) {
	cfg := c.cfg.channel(number)
	count, slotSize := c.cfg.slots(number)
	ch = &channel{control: control, dataQP: dataQP{number: number, vector: c.handlers.vector(number),
		latency: c.cfg.isLatency(number)}}

	slots, err := newSendSlots(c, count, slotSize)
	if err != nil {
		return nil, err
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
		MaxSend: sqDepth(cfg) + 1, MaxRecv: cfg.receives(), MaxInline: cfg.MaxInline, MaxSGE: maxRecords(cfg),
	})
	if err != nil {
		return nil, err
	}
	ch.tx, err = newSender(c, &ch.dataQP, slots, &control.controlSends, pools)
	if err != nil {
		return nil, err
	}
	if ch.rx, err = newReceiver(c, &ch.dataQP, ch.tx.w, &control.controlSends, pools); err != nil {
		return nil, err
	}
	ch.tx.requests.receiver, ch.rx.oneTouch.sender = &ch.rx.queue, &ch.tx.queue
	return ch, nil
}
