package session

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/splitnic/splitnic/protocol"
)

// establish starts the goroutines of a connection whose handshake is done.
func (c *Conn) establish() error {
	// The parts of peerTimeout: a fifth until the next heartbeat leaves, about
	// 200 ms until the kernel sends it once more (TCP_RTO_MIN), from when the
	// half of the user timeout counts. The peer's process may stall meanwhile;
	// its kernel acknowledges.
	if err := setUserTimeout(c.raw, c.peerTimeout/2); err != nil {
		return c.fail(fmt.Errorf("%v: %w", c, err))
	}
	// Close waits for the goroutines only after there is a reason.
	c.end.Lock()
	defer c.end.Unlock()
	if c.end.reason != nil {
		return c.end.reason
	}
	c.workers.Go(c.runReader)
	c.heartbeats.task.Store(beats.Every(c.peerTimeout/heartbeatParts, c.look))
	return nil
}

// Heartbeats that are read at a time, and in a second in the long run. Peers
// send a few in a second; what comes faster waits in the sender's own queue.
const (
	heartbeatBurst = 2000
	heartbeatRate  = 100
)

func (c *Conn) runReader() {
	heartbeats := rate.NewLimiter(heartbeatRate, heartbeatBurst)
	for {
		b, err := readFrame(c.stream)
		if err != nil {
			if errors.Is(err, ErrFrame) {
				c.blame(err)
			} else {
				err = fmt.Errorf("%w: %w", ErrPeerGone, err)
			}
			c.fail(fmt.Errorf("%v: %w", c, err))
			return
		}
		if len(b) == 0 {
			if !c.afford(heartbeats) {
				return
			}
			continue
		}
		t, err := messageType(b)
		switch {
		case err != nil:
		case t == typeBye:
			var bye *ByeError
			if bye, err = decodeBye(b); err == nil {
				err = bye
			}
		case t == typeDirect, t == typeDrain, t == typeStays:
			var lives bool
			if t == typeDirect {
				lives, err = c.heardDirect(b)
			} else {
				lives, err = c.heardDrain(t, b)
			}
			if lives {
				continue
			}
			if err == nil {
				return // it has ended meanwhile
			}
		default:
			err = fmt.Errorf("%q in an established session: %w", text(t), ErrUnexpected)
		}
		c.blame(err)
		c.fail(fmt.Errorf("%v: %w", c, err))
		return
	}
}

// afford waits until a limit lets another message of the peer's pass, and reports whether
// the connection still lives.
func (c *Conn) afford(limit *rate.Limiter) bool {
	wait := limit.Reserve().Delay()
	return wait <= 0 || c.throttle(wait)
}

// throttle waits for d and reports whether the connection still lives. When the peer
// is gone there is no more need to wait for the end of what it has sent.
func (c *Conn) throttle(d time.Duration) bool {
	c.throttled.Add(1)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.broken:
		return true
	case <-c.Done():
		return false
	}
}

// HeartbeatsThrottled is how often the peer's heartbeats came too fast and were left
// waiting.
func (c *Conn) HeartbeatsThrottled() uint64 { return c.throttled.Load() }

// HandleDirect has the messages about direct connections given to fn, one after the
// other, on a goroutine of the connection's, which fn must not hold up. It is called
// before Ready. Without it such a message ends the session.
func (c *Conn) HandleDirect(fn func(*Direct)) {
	c.direct = directing{handle: fn, rate: rate.NewLimiter(directRate, directBurst)}
}

// heardDirect handles a message about a direct connection, and reports whether the
// connection goes on.
func (c *Conn) heardDirect(b []byte) (lives bool, err error) {
	if c.direct.handle == nil {
		return false, fmt.Errorf("%q in a session without the feature %q: %w", typeDirect, protocol.FeatureDirect,
			ErrUnexpected)
	}
	d, err := decodeDirect(b, c.peerRole == roleUnit)
	if err != nil {
		return false, err
	}
	if !c.afford(c.direct.rate) {
		return false, nil
	}
	c.direct.handle(d)
	return true, nil
}

// SendDirect sends a message about a direct connection in an established session. It
// may be called by any goroutine. It waits for a peer that does not read, for as long
// as the connection lives: at most for timeout, after which it ends the connection.
func (c *Conn) SendDirect(d *Direct, timeout time.Duration) error {
	m := directMessage{typeDirect, *d}
	m.Reason = text(m.Reason)
	if err := m.validate(c.peerRole != roleUnit); err != nil {
		return fmt.Errorf("%w message about a direct connection: %w", errOwn, err)
	}
	return c.sendWithin(m, timeout)
}

// heardDrain handles a message of one of the two types, and reports whether the
// connection goes on.
func (c *Conn) heardDrain(t string, b []byte) (lives bool, err error) {
	d := &c.draining
	switch {
	case t == typeDrain && d.drain != nil:
		var on bool
		if on, err = decodeDrain(b); err == nil && c.afford(d.rate) {
			d.drain(on)
			return true, nil
		}
	case t == typeStays && d.stays != nil:
		var reason string
		if reason, err = decodeStays(b); err == nil && c.afford(d.rate) {
			d.stays(reason)
			return true, nil
		}
	default:
		err = fmt.Errorf("%q from %v in a session without the feature %q, or from the wrong side: %w", t, c.peerRole,
			protocol.FeatureDrain, ErrUnexpected)
	}
	return false, err
}

// sendWithin sends a message in an established session. It waits for a peer that does
// not read for timeout at most, and then ends the connection.
func (c *Conn) sendWithin(message any, timeout time.Duration) error {
	end := time.AfterFunc(timeout, func() {
		c.fail(fmt.Errorf("%v: %w: it does not read what it is sent", c, ErrPeerGone))
	})
	defer end.Stop()
	return c.send(message)
}
