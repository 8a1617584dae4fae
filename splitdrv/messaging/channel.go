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
	if err := makeQueues(&ch.DataQP, c.Domain, cfg, o); err != nil {
		return nil, err
	}
	if ch.Moderated, err = cfg.Moderation.apply(ch.SendCQ, ch.RecvCQ); err != nil {
		return nil, err
	}
	ch.tx = tx.New(c, o, &ch.DataQP, ch.shared, &control.Sends, manager)
	ch.rx = rx.New(c, in, &ch.DataQP, ch.tx.W, ch.shared, &control.Sends, manager)
	return ch, nil
}

// makeQueues makes the completion queues and the queue pair of a data channel.
func makeQueues(ch *core.DataQP, d fabric.Domain, c *Config, o *tx.Options) (err error) {
	if ch.SendCQ, err = d.NewCQ(tx.SqDepth(o)+2, ch.Vector); err != nil {
		return err
	}
	if ch.RecvCQ, err = d.NewCQ(c.receives()+1, ch.Vector); err != nil {
		return err
	}
	transport := fabric.RC
	if c.Mode.Lossy() {
		transport = fabric.UC
	}
	ch.QP, err = d.NewQP(fabric.QPConfig{
		Transport: transport,
		SendCQ:    ch.SendCQ, RecvCQ: ch.RecvCQ,
		TrafficClass: c.TrafficClass, ServiceLevel: c.ServiceLevel,
		MaxSend: tx.SqDepth(o) + 1, MaxRecv: c.receives(), MaxInline: c.MaxInline, MaxSGE: tx.MaxRecords(o),
	})
	return err
}

// Inline returns how many bytes the device grants inline to the queue pair of a data channel.
func Inline(c Config) (n int, err error) {
	c = c.withDefaults()
	d, err := c.Device.NewDomain()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	var ch core.DataQP
	if err := makeQueues(&ch, d, &c, c.sender(1)); err != nil {
		return 0, err
	}
	return ch.QP.MaxInline(), nil
}

// Unsent has the frames that a Conn had read from its ports and not sent when it ended.
type Unsent struct {
	// Frames has copies of the frames that were read and not sent, by data channel, in order.
	Frames [][][]byte
	// Uncertain counts frames that were sent and whose elements were not returned. Each may
	// or may not have reached the peer's port. The peer returns elements a quarter of a pool
	// at a time, so this is an upper bound of the lost frames. They are not sent again.
	Uncertain uint64
	// Lost counts frames that were in a batch that could not be posted.
	Lost uint64
	// Unrevoked counts frames from the peer that are not delivered, because they are in
	// one-touch elements whose windows were not invalidated yet. The peer counts them as
	// uncertain.
	Unrevoked uint64
}

// Count returns the number of frames in Frames.
func (r *Unsent) Count() (n uint64) {
	for _, frames := range r.Frames {
		n += uint64(len(frames))
	}
	return n
}

// handOver passes the frames to the senders of another Conn. The last channel gets the
// frames of channels that this Conn does not have.
func (r *Unsent) handOver(channels []*channel) {
	for i, frames := range r.Frames {
		channels[min(i, len(channels)-1)].tx.Resend(frames)
	}
}
