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
func newChannel(c *shared, all *Config, number int, control *control, manager *poolManager) (ch *channel, err error) {
	cfg, o := all.channel(number), all.sender(number)
	count, slotSize := all.slots(number)
	ch = &channel{control: control, dataQP: dataQP{number: number, vector: c.handlers.vector(number),
		latency: all.isLatency(number)}}

	slots, err := newSendSlots(c, count, slotSize)
	if err != nil {
		return nil, err
	}
	if ch.sendCQ, err = c.domain.NewCQ(sqDepth(o)+2, ch.vector); err != nil {
		return nil, err
	}
	if ch.recvCQ, err = c.domain.NewCQ(cfg.receives()+1, ch.vector); err != nil {
		return nil, err
	}
	if ch.moderated, err = cfg.Moderation.apply(ch.sendCQ, ch.recvCQ); err != nil {
		return nil, err
	}
	if ch.qp, err = c.domain.NewQP(queuePair(cfg, o, ch.sendCQ, ch.recvCQ)); err != nil {
		return nil, err
	}
	ch.tx, err = newSender(c, o, &ch.dataQP, slots, &control.controlSends, manager)
	if err != nil {
		return nil, err
	}
	if ch.rx, err = newReceiver(c, all.receiver(number), &ch.dataQP, ch.tx.w, &control.controlSends, manager); err != nil {
		return nil, err
	}
	ch.tx.requests.receiver, ch.rx.oneTouch.sender = &ch.rx.queue, &ch.tx.queue
	return ch, nil
}

// queuePair returns the configuration of the queue pair of a data channel.
func queuePair(c *Config, o *sendOptions, send, recv fabric.CQ) fabric.QPConfig {
	transport := fabric.RC
	if c.Mode == protocol.ModeSendUC {
		transport = fabric.UC
	}
	return fabric.QPConfig{
		Transport: transport,
		SendCQ:    send, RecvCQ: recv,
		TrafficClass: c.TrafficClass, ServiceLevel: c.ServiceLevel,
		MaxSend: sqDepth(o) + 1, MaxRecv: c.receives(), MaxInline: c.MaxInline, MaxSGE: maxRecords(o),
	}
}

// Inline returns how many bytes the device grants inline to the queue pair of a data channel.
func Inline(c Config) (n int, err error) {
	c = c.withDefaults()
	o := c.sender(1)
	d, err := c.Device.NewDomain()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	send, err := d.NewCQ(sqDepth(o)+2, 0)
	if err != nil {
		return 0, err
	}
	recv, err := d.NewCQ(c.receives()+1, 0)
	if err != nil {
		return 0, err
	}
	qp, err := d.NewQP(queuePair(&c, o, send, recv))
	if err != nil {
		return 0, err
	}
	return qp.MaxInline(), nil
}
