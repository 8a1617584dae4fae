package messaging

import (
	"errors"
	"sync/atomic"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/control"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/rx"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/tx"
)

// channel is a data channel. The sender and the receiver each own the parts with their names.
type channel struct {
	core.DataQP
	shared  *pools.Channel // which the pool manager uses too
	tx      *tx.Sender
	rx      *rx.Receiver
	control *control.Channel // which the channel polls, with Config.Poll
	stopped *atomic.Bool     // the session has ended
}

// newChannel makes the data channel with this number, without pools.
func newChannel(
	c *core.Session, all *Config, number int, control *control.Channel, manager *pools.Manager,
) (ch *channel, err error) {
	cfg, o, in := all.channel(number), all.sender(number), all.receiver(number)
	if k := all.Keys; k != nil {
		o.Sealer, in.Opener = k.Sealer(number, string(all.Mode)), k.Opener(number, string(all.Mode))
	}
	count, slotSize := all.slots(number)
	ch = &channel{
		control: control, stopped: &c.Stopped,
		DataQP: core.DataQP{Number: number, Vector: c.Handlers.Vector(number), Latency: all.isLatency(number)},
	}
	if ch.shared, err = manager.AddChannel(cfg.Pools, count, slotSize); err != nil {
		return nil, err
	}
	if ch.SendCQ, err = c.Domain.NewCQ(tx.SqDepth(o)+2, ch.Vector); err != nil {
		return nil, err
	}
	if ch.RecvCQ, err = c.Domain.NewCQ(cfg.receives()+1, ch.Vector); err != nil {
		return nil, err
	}
	if ch.Moderated, err = cfg.Moderation.apply(ch.SendCQ, ch.RecvCQ); err != nil {
		return nil, err
	}
	if ch.QP, err = c.Domain.NewQP(queuePair(cfg, o, ch.SendCQ, ch.RecvCQ)); err != nil {
		return nil, err
	}
	ch.tx = tx.New(c, o, &ch.DataQP, ch.shared, &control.Sends, manager)
	ch.rx = rx.New(c, in, &ch.DataQP, ch.tx.W, ch.shared, &control.Sends, manager)
	return ch, nil
}

// queuePair returns the configuration of the queue pair of a data channel.
func queuePair(c *Config, o *tx.Options, send, recv fabric.CQ) fabric.QPConfig {
	transport := fabric.RC
	if c.Mode.Lossy() {
		transport = fabric.UC
	}
	return fabric.QPConfig{
		Transport: transport,
		SendCQ:    send, RecvCQ: recv,
		TrafficClass: c.TrafficClass, ServiceLevel: c.ServiceLevel,
		MaxSend: tx.SqDepth(o) + 1, MaxRecv: c.receives(), MaxInline: c.MaxInline, MaxSGE: tx.MaxRecords(o),
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
	send, err := d.NewCQ(tx.SqDepth(o)+2, 0)
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
