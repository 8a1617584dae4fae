package session

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/splitnic/splitnic/protocol"
)

// establish starts the goroutines of a connection after its handshake.
func (c *Conn) establish() error {
	// peerTimeout consists of a fifth until the next heartbeat is sent, about 200 ms until
	// the kernel sends it again (TCP_RTO_MIN; 400 ms after a tail loss probe), and the user
	// timeout, a half, which counts from then. The peer's process may stall in the meantime,
	// because its kernel acknowledges.
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

// The limit for heartbeats that are read: at once, and per second in the long run. Peers
// send a few per second. Further heartbeats wait in the sender's queue.
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
			err = decodeBye(b)
		default:
			if err = c.hear(t, b); err == nil {
				continue
			}
		}
		if c.Err() != nil {
			return // who has ended the connection may be saying why, and then closes it
		}
		c.blame(err)
		c.fail(fmt.Errorf("%v: %w", c, err))
		return
	}
}

// afford waits until a limit permits another message of the peer. It reports false if the
// connection has ended.
func (c *Conn) afford(limit *rate.Limiter) bool {
	wait := limit.Reserve().Delay()
	return wait <= 0 || c.throttle(wait)
}

// throttle waits for d. It reports false if the connection has ended. It stops waiting when
// the peer is gone, to read the rest of what the peer has sent.
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

// HeartbeatsThrottled returns how often the peer's heartbeats had to wait because of the
// limit.
func (c *Conn) HeartbeatsThrottled() uint64 { return c.throttled.Load() }

// featureOf has the features of sessions with these messages.
var featureOf = map[string]string{
	typeDirect: protocol.FeatureDirect, typeDrain: protocol.FeatureDrain, typeStays: protocol.FeatureDrain,
}

// handles registers the handler of a type of messages. The session is not established yet.
func (c *Conn) handles(t string, limit rate.Limit, burst int, decode func(b []byte) (handle func(), err error)) {
	if c.handlers == nil {
		c.handlers = make(map[string]handler)
	}
	c.handlers[t] = handler{decode, rate.NewLimiter(limit, burst)}
}

// hear handles a message, unless it returns the reason for the end of the connection.
func (c *Conn) hear(t string, b []byte) error {
	h, ok := c.handlers[t]
	if feature := featureOf[t]; !ok && feature != "" {
		return fmt.Errorf("%q from %v in a session without the feature %q, or from the wrong side: %w", t, c.peerRole,
			feature, ErrUnexpected)
	} else if !ok {
		return fmt.Errorf("%q in an established session: %w", text(t), ErrUnexpected)
	}
	handle, err := h.decode(b)
	if err == nil && !c.afford(h.rate) {
		err = c.Err() // it has ended in the meantime
	}
	if err == nil {
		handle()
	}
	return err
}

// HandleDirect registers fn, which is called with each message about direct connections, one
// after the other. fn runs on a goroutine of the connection and must not wait. HandleDirect
// must be called before Ready. Without it, such a message ends the session.
func (c *Conn) HandleDirect(fn func(*Direct)) {
	c.handles(typeDirect, directRate, directBurst, func(b []byte) (func(), error) {
		d, err := decodeDirect(b, c.peerRole == roleUnit)
		return func() { fn(d) }, err
	})
}

// SendDirect sends a message about a direct connection in an established session. Any
// goroutine may call it. If the peer does not read the message within timeout, SendDirect
// ends the connection.
func (c *Conn) SendDirect(d *Direct, timeout time.Duration) error {
	m := directMessage{typeDirect, *d}
	m.Reason = text(m.Reason)
	if err := m.validate(c.peerRole != roleUnit); err != nil {
		return fmt.Errorf("%w message about a direct connection: %w", errOwn, err)
	}
	return c.sendWithin(m, timeout)
}

// sendWithin sends a message in an established session. If the peer does not read it within
// timeout, sendWithin ends the connection.
func (c *Conn) sendWithin(message any, timeout time.Duration) error {
	end := time.AfterFunc(timeout, func() {
		c.fail(fmt.Errorf("%v: %w: it does not read what it is sent", c, ErrPeerGone))
	})
	defer end.Stop()
	return c.send(message)
}
