package messaging

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/splitnic/splitnic/protocol"
)

// Remains is what the end of a Conn leaves of the frames that it had taken from
// its ports.
type Remains struct {
	// Frames were read and not sent, by data channel, in order. They are copies.
	Frames [][][]byte
	// Uncertain counts frames that were sent and whose element has not come back:
	// each may or may not have got to the peer's port. The peer returns elements
	// a quarter of a pool at a time, so it is a bound. None of them is sent again.
	Uncertain uint64
	// Lost counts frames that were about to be sent when it failed.
	Lost uint64
	// Unrevoked counts frames that had come from the peer and are not delivered:
	// they lie in one-touch elements whose windows were not invalid yet. The peer
	// has them among its uncertain ones.
	Unrevoked uint64
}

// Count is how many frames there are to be sent.
func (r *Remains) Count() (n uint64) {
	for _, frames := range r.Frames {
		n += uint64(len(frames))
	}
	return n
}

// Pause has the data channels take no more frames from their ports, and waits
// until all that were taken and sent have arrived in the peer's memory. Frames
// from the peer go on coming. A pause ends with Resume or Stop.
func (c *Conn) Pause(ctx context.Context) error {
	paused := make(chan struct{}, len(c.channels))
	for _, ch := range c.channels {
		ch.tx.paused.Store(true)
		ch.tx.queue.put(sqRequest{kind: sqDrain, done: paused})
	}
	fail := func(err error) error { return fmt.Errorf("messaging: wait for what was sent: %w", err) }
	for range c.channels {
		select {
		case <-paused:
		case <-ctx.Done():
			return fail(context.Cause(ctx))
		case <-c.done:
			return fail(net.ErrClosed)
		}
	}
	// The reply says that the peer has handled all indications, too.
	var status *StatusError
	if _, err := c.Request(ctx, protocol.CfgKeepAlive, nil); err != nil && !errors.As(err, &status) {
		return fail(err)
	}
	return nil
}

// Resume ends a pause.
func (c *Conn) Resume() {
	for _, ch := range c.channels {
		ch.tx.paused.Store(false)
		ch.tx.queue.put(sqRequest{kind: sqDrain})
	}
}

// Stop ends the session as Close does, but only waits for the workers: when it
// returns the ports are the caller's again. What the peer had written by then
// has been delivered, as far as it was in order. Close has still to be called,
// which takes longer.
func (c *Conn) Stop() *Remains {
	c.halt()
	r := &Remains{Frames: make([][][]byte, len(c.channels))}
	for i, ch := range c.channels {
		ch.tx.remains(r, i)
		r.Unrevoked += ch.rx.count.RxUnrevoked.Load()
	}
	return r
}

// takeOver hands the frames that remain of an earlier Conn to the senders. What
// belonged to channels that this one does not have goes to the last one.
func (c *Conn) takeOver(r *Remains) {
	for i, frames := range r.Frames {
		tx := c.channels[min(i, len(c.channels)-1)].tx
		tx.in.unsent = append(tx.in.unsent, frames...)
	}
}

// remains adds what the sender, which has ended, leaves.
func (s *sender) remains(r *Remains, channel int) {
	r.Frames[channel] = s.in.left()
	r.Lost += uint64(len(s.out.frames))
	for _, g := range *s.remote.Load() {
		for elem := range g.Outstanding() {
			r.Uncertain += uint64(g.Frames[elem])
		}
	}
}
