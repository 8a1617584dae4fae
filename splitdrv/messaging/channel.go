package messaging

import (
	"errors"

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
func newChannel(c *shared, number int, control *control, manager *poolManager) (ch *channel, err error) {
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
	if ch.qp, err = c.domain.NewQP(queuePair(cfg, ch.sendCQ, ch.recvCQ)); err != nil {
		return nil, err
	}
	ch.tx, err = newSender(c, &ch.dataQP, slots, &control.controlSends, manager)
	if err != nil {
		return nil, err
	}
	if ch.rx, err = newReceiver(c, &ch.dataQP, ch.tx.w, &control.controlSends, manager); err != nil {
		return nil, err
	}
	ch.tx.requests.receiver, ch.rx.oneTouch.sender = &ch.rx.queue, &ch.tx.queue
	return ch, nil
}

// queuePair returns the configuration of the queue pair of a data channel.
func queuePair(c *Config, send, recv fabric.CQ) fabric.QPConfig {
	transport := fabric.RC
	if c.Mode == protocol.ModeSendUC {
		transport = fabric.UC
	}
	return fabric.QPConfig{
		Transport: transport,
		SendCQ:    send, RecvCQ: recv,
		TrafficClass: c.TrafficClass, ServiceLevel: c.ServiceLevel,
		MaxSend: sqDepth(c) + 1, MaxRecv: c.receives(), MaxInline: c.MaxInline, MaxSGE: maxRecords(c),
	}
}

// Inline returns how many bytes the device grants inline to the queue pair of a data channel.
func Inline(c Config) (n int, err error) {
	c = c.withDefaults()
	d, err := c.Device.NewDomain()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	send, err := d.NewCQ(sqDepth(&c)+2, 0)
	if err != nil {
		return 0, err
	}
	recv, err := d.NewCQ(c.receives()+1, 0)
	if err != nil {
		return 0, err
	}
	qp, err := d.NewQP(queuePair(&c, send, recv))
	if err != nil {
		return 0, err
	}
	return qp.MaxInline(), nil
}
