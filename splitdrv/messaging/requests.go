package messaging

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/splitnic/splitnic/protocol"
)

// StatusError is a configuration request that the peer answered with another
// status than protocol.CfgOK.
type StatusError struct {
	Type   protocol.CfgType
	Status protocol.CfgStatus
}

// Error implements error.
func (e *StatusError) Error() string {
	return fmt.Sprintf("the peer answered a request about %v with: %v", e.Type, e.Status)
}

// requests are our own requests that the peer has not answered, and the peer's
// that we have not.
type requests struct {
	slots chan struct{} // one token per unanswered request of ours
	// configuring has one for each of them that the peer's Config.Pace may hold
	// back: there is a slot left for what cannot wait for those.
	configuring chan struct{}
	inbox       chan request  // the peer's, for the configuration goroutine
	owed        atomic.Int32  // the peer's that are not answered
	held        atomic.Uint64 // of these: had to wait because there were too many

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]pending
}

type pending struct {
	t     protocol.CfgType
	reply chan protocol.CfgUtilReply // of capacity one
}

// request is a copy of one of the peer's requests.
type request struct {
	transaction uint64
	t           protocol.CfgType
	data        []byte
}

func newRequests() *requests {
	return &requests{
		slots:       make(chan struct{}, MaxRequests),
		configuring: make(chan struct{}, MaxRequests-1),
		inbox:       make(chan request, MaxRequests),
		waiting:     make(map[uint64]pending, MaxRequests),
	}
}

// Request sends a configuration request and waits for the reply, whose data it
// returns. At most MaxRequests are out at a time, one fewer of those that the
// peer may hold back; more wait for their turn. A status other than
// protocol.CfgOK is returned as a *StatusError. It fails with net.ErrClosed, wrapped,
// when the session ends first.
//
// When ctx ends first the request stays counted until its reply comes, because
// it occupies a receive at the peer until then.
func (c *Conn) Request(ctx context.Context, t protocol.CfgType, data []byte) ([]byte, error) {
	p, err := c.ask(ctx, t, data)
	if err != nil {
		return nil, fmt.Errorf("request about %v: %w", t, err)
	}
	return c.await(ctx, p)
}

// full reports whether as many requests are unanswered as there can be.
func (q *requests) full() bool { return len(q.slots) == cap(q.slots) }

// await waits for the reply to a request that was sent.
func (c *Conn) await(ctx context.Context, p pending) ([]byte, error) {
	err := net.ErrClosed
	select {
	case r := <-p.reply:
		if r.Status != protocol.CfgOK {
			return nil, &StatusError{Type: p.t, Status: r.Status}
		}
		return r.Data, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-c.done:
	}
	return nil, fmt.Errorf("request about %v: %w", p.t, err)
}

// ask sends a request, of which the reply is pending then.
func (c *Conn) ask(ctx context.Context, t protocol.CfgType, data []byte) (pending, error) {
	q := c.requests
	if configures(t) {
		if err := c.acquire(ctx, q.configuring); err != nil {
			return pending{}, err
		}
	}
	if err := c.acquire(ctx, q.slots); err != nil {
		if configures(t) {
			<-q.configuring
		}
		return pending{}, err
	}
	p := pending{t: t, reply: make(chan protocol.CfgUtilReply, 1)}
	q.mu.Lock()
	q.next++
	id := q.next
	q.waiting[id] = p
	q.mu.Unlock()
	return p, c.control.send(func(dst []byte) []byte {
		return protocol.AppendCfgUtilRequest(dst, protocol.CfgUtilRequest{TransactionContext: id, Type: t, Data: data})
	})
}

// acquire takes a token, when there is one.
func (c *Conn) acquire(ctx context.Context, tokens chan<- struct{}) error {
	select {
	case tokens <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.done:
		return net.ErrClosed
	}
}

// onReply hands a reply to the one who waits for it.
func (c *Conn) onReply(msg []byte) error {
	m, err := protocol.DecodeCfgUtilReply(msg)
	if err != nil {
		return controlViolation(err, "CfgUtilReply")
	}
	q := c.requests
	q.mu.Lock()
	p, ok := q.waiting[m.TransactionContext]
	delete(q.waiting, m.TransactionContext)
	q.mu.Unlock()
	if !ok || p.t != m.Type {
		return controlViolation(ErrReply, "reply about %v, transaction %#x", m.Type, m.TransactionContext)
	}
	m.Data = append([]byte(nil), m.Data...)
	p.reply <- m
	<-q.slots
	if configures(p.t) {
		<-q.configuring
	}
	return nil
}

// onRequest hands a request to the configuration goroutine. A peer that has
// more out than agreed breaks the protocol.
func (c *Conn) onRequest(msg []byte) error {
	m, err := protocol.DecodeCfgUtilRequest(msg)
	if err != nil {
		return controlViolation(err, "CfgUtilRequest")
	}
	if c.requests.owed.Add(1) > MaxRequests {
		return controlViolation(ErrTooManyRequests, "more than %d", MaxRequests)
	}
	c.requests.inbox <- request{transaction: m.TransactionContext, t: m.Type, data: append([]byte(nil), m.Data...)}
	return nil
}

// What the peer asks the Conn itself, in a second in the long run and at once: a
// sign of life in each of its intervals, another one for each pool that it asks
// for, what it has sent on each channel every 50 ms, and the keys of pools. No
// peer that keeps to the protocol comes near it.
const (
	ownRate  = 1000
	ownBurst = 200
)

// answer is the configuration goroutine: it answers the peer's requests, one at a
// time and no faster than the pace allows. One that is too fast waits: it has
// MaxRequests unanswered at most. Keep-alives come here too, so that a reply says
// that the whole half is alive, but they do not wait for what Config.Pace holds
// back.
func (c *Conn) answer() error {
	own := rate.NewLimiter(ownRate, ownBurst)
	var held []request       // for Config.OnRequest, in order
	var due <-chan time.Time // when the first of them is carried out; nil: it has not been judged
	for {
		var err error
		select {
		case r := <-c.requests.inbox:
			if c.stopped.Load() {
				return nil // the session ended with requests in the inbox
			}
			if configures(r.t) {
				held = append(held, r)
				break
			}
			if wait := own.Reserve().Delay(); wait > 0 {
				c.requests.held.Add(1)
				if !c.sleep(wait) {
					return nil
				}
			}
			err = c.reply(&r)
		case <-due:
			due = nil
			err = c.reply(&held[0])
			held = held[1:]
		case <-c.done:
			return nil
		}
		for err == nil && len(held) > 0 && due == nil {
			if wait := c.cfg.Pace(held[0].t, held[0].data); wait > 0 {
				c.requests.held.Add(1)
				due = time.After(wait)
				break
			}
			err = c.reply(&held[0])
			held = held[1:]
		}
		if err != nil {
			return err
		}
	}
}

// configures reports whether such a request is one for Config.OnRequest.
func configures(t protocol.CfgType) bool {
	switch t {
	case protocol.CfgKeepAlive, protocol.CfgSent, protocol.CfgBind, protocol.CfgPoolKeys:
		return false
	default:
		return true
	}
}

// sleep waits, and reports whether the session goes on.
func (c *Conn) sleep(wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.done:
		return false
	}
}

// reply carries out a request and answers it.
func (c *Conn) reply(r *request) error {
	status, data := protocol.CfgOK, []byte(nil)
	switch r.t {
	case protocol.CfgKeepAlive:
		if protocol.DecodeKeepAlive(r.data) != nil {
			status = protocol.CfgInvalid
		}
	case protocol.CfgSent:
		status = c.onSent(r.data)
	case protocol.CfgBind:
		status = c.answerProof()
	case protocol.CfgPoolKeys:
		status = c.onPoolKeys(r.data)
	default:
		status, data = c.cfg.OnRequest(r.t, r.data)
	}
	c.requests.owed.Add(-1) // before the reply, upon which the peer may ask again
	return c.control.send(func(dst []byte) []byte {
		return protocol.AppendCfgUtilReply(dst, protocol.CfgUtilReply{
			TransactionContext: r.transaction, Type: r.t, Status: status, Data: data,
		})
	})
}

// onSent hears how much the peer has sent on a data channel that may lose
// messages.
func (c *Conn) onSent(data []byte) protocol.CfgStatus {
	sent, err := protocol.DecodeSent(data)
	switch {
	case c.cfg.Mode != protocol.ModeSendUC:
		return protocol.CfgUnsupported
	case err != nil || sent.Channel < 1 || int(sent.Channel) > len(c.channels):
		return protocol.CfgInvalid
	}
	r := c.channels[sent.Channel-1].rx
	r.sent.Store(sent.Next)
	if !r.mailed.Swap(true) {
		r.queue.put(rxEvent{kind: rxSent})
	}
	return protocol.CfgOK
}
