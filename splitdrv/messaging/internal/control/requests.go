package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
)

// StatusError is a configuration request that the peer answered with another
// status than protocol.CfgOK.
type StatusError struct {
	Type   protocol.CfgType
	Status protocol.CfgStatus
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the peer answered a request about %v with: %v", e.Type, e.Status)
}

// MaxRequests is the largest number of unanswered requests of a side.
const MaxRequests = 4

// Requests has the unanswered requests of both sides.
type Requests struct {
	c       *core.Session
	o       *Options
	control *Sends
	// own answers the requests that are not for Config.OnRequest.
	own func(t protocol.CfgType, data []byte) protocol.CfgStatus

	Slots chan struct{} // a token for each unanswered request of this side
	// configuring has a token for each of these that the peer's Config.Pace may delay. It
	// has less room than slots, so that other requests need not wait for those.
	configuring chan struct{}
	inbox       chan request  // requests of the peer, for the request handler
	unanswered  atomic.Int32  // number of unanswered requests of the peer
	idle        atomic.Bool   // the request handler waits
	pace        *rate.Limiter // rate of the requests that Conn answers itself
	Held        atomic.Uint64 // requests of the peer that had to wait for a rate limit

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]pending
}

type pending struct {
	t     protocol.CfgType
	reply chan protocol.CfgUtilReply // capacity one
}

// Request is a copy of a request of the peer.
type request struct {
	transaction uint64
	t           protocol.CfgType
	data        []byte
}

// NewRequests returns the requests of a session. own answers those that are not for
// Options.OnRequest.
func NewRequests(
	c *core.Session, o *Options, control *Sends, own func(t protocol.CfgType, data []byte) protocol.CfgStatus,
) *Requests {
	return &Requests{
		c: c, o: o, control: control, own: own,
		Slots:       make(chan struct{}, MaxRequests),
		configuring: make(chan struct{}, MaxRequests-1),
		inbox:       make(chan request, MaxRequests),
		pace:        rate.NewLimiter(ownRate, ownBurst),
		waiting:     make(map[uint64]pending, MaxRequests),
	}
}

// Request is Conn.Request.
func (q *Requests) Request(ctx context.Context, t protocol.CfgType, data []byte) ([]byte, error) {
	p, err := q.Ask(ctx, t, data, make(chan protocol.CfgUtilReply, 1))
	if err != nil {
		return nil, fmt.Errorf("request about %v: %w", t, err)
	}
	return q.await(ctx, p)
}

// KeepAlive sends a keep-alive and waits for the reply, whose status does not matter. The peer has handled
// all earlier messages then.
func (q *Requests) KeepAlive(ctx context.Context) error {
	_, err := q.Request(ctx, protocol.CfgKeepAlive, nil)
	if status := (*StatusError)(nil); errors.As(err, &status) {
		return nil
	}
	return err
}

// full reports whether the maximum of requests of this side is unanswered.
func (q *Requests) full() bool { return len(q.Slots) == cap(q.Slots) }

func (q *Requests) await(ctx context.Context, p pending) ([]byte, error) {
	err := net.ErrClosed
	select {
	case r := <-p.reply:
		if r.Status != protocol.CfgOK {
			return nil, &StatusError{Type: p.t, Status: r.Status}
		}
		return r.Data, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-q.c.Done:
	}
	return nil, fmt.Errorf("request about %v: %w", p.t, err)
}

// Ask sends a request, and waits before if it has to. The reply will be put into reply,
// whose capacity must be one.
func (q *Requests) Ask(
	ctx context.Context, t protocol.CfgType, data []byte, reply chan protocol.CfgUtilReply,
) (pending, error) {
	if configures(t) {
		if err := q.acquire(ctx, q.configuring); err != nil {
			return pending{}, err
		}
	}
	if err := q.acquire(ctx, q.Slots); err != nil {
		if configures(t) {
			<-q.configuring
		}
		return pending{}, err
	}
	p := pending{t: t, reply: reply}
	id := q.expect(p)
	return p, q.control.Send(func(dst []byte) []byte {
		return protocol.AppendCfgUtilRequest(dst, protocol.CfgUtilRequest{TransactionContext: id, Type: t, Data: data})
	})
}

// tryAsk sends a request without data, of a type that the peer does not delay, if it can do
// so without waiting. It reports whether the request was sent.
func (q *Requests) tryAsk(t protocol.CfgType, reply chan protocol.CfgUtilReply) (bool, error) {
	select {
	case q.Slots <- struct{}{}:
	default:
		return false, nil
	}
	id := q.expect(pending{t: t, reply: reply})
	sent, err := q.control.sendNow(func(dst []byte) []byte {
		return protocol.AppendCfgUtilRequest(dst, protocol.CfgUtilRequest{TransactionContext: id, Type: t})
	})
	if !sent && err == nil {
		q.mu.Lock()
		delete(q.waiting, id)
		q.mu.Unlock()
		<-q.Slots
	}
	return sent, err
}

// expect registers a request whose reply is expected, and returns its transaction.
func (q *Requests) expect(p pending) (id uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.next++
	q.waiting[q.next] = p
	return q.next
}

func (q *Requests) acquire(ctx context.Context, tokens chan<- struct{}) error {
	select {
	case tokens <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-q.c.Done:
		return net.ErrClosed
	}
}

// OnReply passes a reply to the goroutine that waits for it.
func (q *Requests) OnReply(msg []byte) error {
	m, err := protocol.DecodeCfgUtilReply(msg)
	if err != nil {
		return err
	}
	q.mu.Lock()
	p, ok := q.waiting[m.TransactionContext]
	delete(q.waiting, m.TransactionContext)
	q.mu.Unlock()
	if !ok || p.t != m.Type {
		return core.ControlViolation(bufpool.ErrReply, "reply about %v, transaction %#x", m.Type, m.TransactionContext)
	}
	m.Data = append([]byte(nil), m.Data...)
	p.reply <- m
	<-q.Slots
	if configures(p.t) {
		<-q.configuring
	}
	return nil
}

// OnRequest passes a request to the request handler. A peer with more unanswered requests
// than agreed breaks the protocol.
func (q *Requests) OnRequest(msg []byte) error {
	m, err := protocol.DecodeCfgUtilRequest(msg)
	if err != nil {
		return err
	}
	if q.unanswered.Add(1) > MaxRequests {
		return core.ControlViolation(core.ErrTooManyRequests, "more than %d", MaxRequests)
	}
	if m.Type == protocol.CfgKeepAlive && q.idle.Load() && q.pace.Allow() {
		switch sent, err := q.replyNow(&m); {
		case err != nil:
			q.c.EndLater(err) // returned, it would count as a violation by the peer
			return nil
		case sent:
			return nil
		}
	}
	q.inbox <- request{transaction: m.TransactionContext, t: m.Type, data: append([]byte(nil), m.Data...)}
	return nil
}

// replyNow answers a keep-alive on the control handler's goroutine, if a slot is free, and
// reports whether it has. The caller has checked that the request handler is idle, so the
// answer shows as much about this side as one of the request handler, which need not be
// woken.
func (q *Requests) replyNow(m *protocol.CfgUtilRequest) (bool, error) {
	q.unanswered.Add(-1) // before the reply, after which the peer may send another request
	sent, err := q.control.sendNow(func(dst []byte) []byte {
		return protocol.AppendCfgUtilReply(dst, protocol.CfgUtilReply{
			TransactionContext: m.TransactionContext, Type: m.Type, Status: q.own(m.Type, m.Data),
		})
	})
	if !sent {
		q.unanswered.Add(1)
	}
	return sent, err
}

// The limits for requests that Conn answers itself: per second in the long run, and at once.
// A peer sends a keep-alive in each interval and one for each pool that it asks for, a
// CfgSent for each channel every 50 ms, and the keys of pools. A peer that keeps to the
// protocol stays far below the limits.
const (
	ownRate  = 1000
	ownBurst = 200
)

// Answer is the request handler's goroutine. It answers the peer's requests, one at a time,
// within the rate limits. A peer that exceeds them has to wait, because it may have only
// MaxRequests unanswered. Keep-alives are answered here too, so that a reply shows that this
// goroutine works; they do not wait for requests that Config.Pace delays.
func (q *Requests) Answer() error {
	var held []request       // requests for Config.OnRequest, in order
	var due <-chan time.Time // when the first of held may be answered; nil: Pace was not asked yet
	for {
		var err error
		q.idle.Store(true)
		select {
		case r := <-q.inbox:
			q.idle.Store(false)
			if q.c.Stopped.Load() {
				return nil // the session ended with requests in the inbox
			}
			if configures(r.t) {
				held = append(held, r)
				break
			}
			if wait := q.pace.Reserve().Delay(); wait > 0 {
				q.Held.Add(1)
				if !q.c.Sleep(wait) {
					return nil
				}
			}
			err = q.reply(&r)
		case <-due:
			q.idle.Store(false)
			due = nil
			err = q.reply(&held[0])
			held = held[1:]
		case <-q.c.Done:
			return nil
		}
		for err == nil && len(held) > 0 && due == nil {
			if wait := q.o.Pace(held[0].t, held[0].data); wait > 0 {
				q.Held.Add(1)
				due = time.After(wait)
				break
			}
			err = q.reply(&held[0])
			held = held[1:]
		}
		if err != nil {
			return err
		}
	}
}

// configures reports whether requests of type t are for Config.OnRequest.
func configures(t protocol.CfgType) bool {
	switch t {
	case protocol.CfgKeepAlive, protocol.CfgSent, protocol.CfgBind, protocol.CfgPath, protocol.CfgPoolKeys:
		return false
	default:
		return true
	}
}

// reply carries out a request and answers it.
func (q *Requests) reply(r *request) error {
	var status protocol.CfgStatus
	var data []byte
	if configures(r.t) {
		status, data = q.o.OnRequest(r.t, r.data)
	} else {
		status = q.own(r.t, r.data)
	}
	q.unanswered.Add(-1) // before the reply, after which the peer may send another request
	return q.control.Send(func(dst []byte) []byte {
		return protocol.AppendCfgUtilReply(dst, protocol.CfgUtilReply{
			TransactionContext: r.transaction, Type: r.t, Status: status, Data: data,
		})
	})
}
