package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// lostAfter is the time after which the last message, or the frame of a round trip, is sent again in
// a mode that can lose messages.
const lostAfter = 200 * time.Millisecond

// end is one end of a measurement: channels and their ports.
type end struct {
	spec      Spec
	initiator bool
	conn      *messaging.Conn

	floods []*flood
	tx     *sending   // nil if it sends no flood
	rx     *receiving // nil if it receives no flood
	pinger *pinger
	ponger *ponger

	stop    chan struct{}
	workers sync.WaitGroup
	closing sync.Once
}

// newEnd makes the channels and ports of an end. The Spec completes c.
func newEnd(s Spec, c messaging.Config, initiator bool) (*end, error) {
	e := &end{spec: s, initiator: initiator, stop: make(chan struct{})}
	if err := e.makePorts(); err != nil {
		e.closePorts()
		return nil, err
	}
	var err error
	if e.conn, err = messaging.New(s.messaging(c)); err != nil {
		e.closePorts()
		return nil, err
	}
	return e, nil
}

func (e *end) makePorts() (err error) {
	s := &e.spec
	switch {
	case s.Kind == Lat && e.initiator:
		e.pinger, err = newPinger(s)
		return err
	case s.Kind == Lat:
		e.ponger, err = newPonger(s)
		return err
	}
	if e.initiator || s.Bidirectional {
		e.tx = newSending(s)
	}
	if !e.initiator || s.Bidirectional {
		e.rx = newReceiving()
	}
	for range s.Queues {
		p, err := newFlood(s, e.tx, e.rx)
		if err != nil {
			return err
		}
		e.floods = append(e.floods, p)
	}
	return nil
}

// start begins the measurement. The channels of both ends must be connected.
func (e *end) start() error {
	var ports []messaging.Port
	switch {
	case e.pinger != nil:
		ports = []messaging.Port{e.pinger}
	case e.ponger != nil:
		ports = []messaging.Port{e.ponger}
	}
	for _, p := range e.floods {
		ports = append(ports, p)
	}
	if err := e.conn.Start(ports); err != nil {
		return err
	}
	e.workers.Go(e.runRelease)
	if e.rx != nil {
		e.workers.Go(func() { e.rx.sample(e.stop) })
	}
	if e.tx != nil && e.spec.Duration > 0 {
		e.workers.Go(e.runTimer)
	}
	if e.spec.Mode.Lossy() {
		e.workers.Go(e.runAgain)
	}
	return nil
}

// releaseInterval is the interval at which an end checks whether it may begin.
const releaseInterval = time.Millisecond

// runRelease has the ports send as soon as the peer has lent a pool for their frames. Before that,
// frames could be dropped because they fit no pool.
func (e *end) runRelease() {
	tick := time.NewTicker(releaseInterval)
	defer tick.Stop()
	for !e.lent() {
		select {
		case <-tick.C:
		case <-e.stop:
			return
		case <-e.conn.Done():
			return
		}
	}
	for _, p := range e.floods {
		p.release()
	}
	if e.pinger != nil {
		e.pinger.release()
	}
	if e.ponger != nil {
		e.ponger.release()
	}
}

// lent reports whether each data channel has a pool for a message.
func (e *end) lent() bool {
	size := e.spec.Size
	if e.spec.Mode.Sends() {
		size += protocol.SendDataOverhead
	}
	if e.spec.Cipher != "" {
		size += seal.Overhead
	}
	for _, c := range e.conn.Stats().Channels {
		if !slices.ContainsFunc(c.RemotePools, func(p messaging.Pool) bool { return p.ElementSize >= size }) {
			return false
		}
	}
	return true
}

// runTimer stops the sending after the duration of the measurement.
func (e *end) runTimer() {
	select {
	case <-e.tx.opened:
	case <-e.stop:
		return
	}
	timer := time.NewTimer(e.spec.Duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		e.tx.stop()
	case <-e.stop:
	}
}

// runAgain sends the last messages, and frames of round trips, again if they seem lost.
func (e *end) runAgain() {
	tick := time.NewTicker(lostAfter)
	defer tick.Stop()
	round := ^uint32(0) // the round at the last tick
	for {
		select {
		case <-tick.C:
		case <-e.stop:
			return
		}
		if e.pinger != nil {
			now := e.pinger.number.Load()
			if now == round {
				e.pinger.nudge(now)
			}
			round = now
		}
		if e.tx == nil || isDone(e.tx.reported) {
			continue
		}
		for _, p := range e.floods {
			if p.ended.Load() {
				p.ask(todoEnd)
			}
		}
	}
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wait returns when the initiator has its result. It returns an error if ctx is done, or if the Conn
// or the other end ends. ended has the error of the other end.
func (e *end) wait(ctx context.Context, ended <-chan error) error {
	var waits []<-chan struct{}
	if e.pinger != nil {
		waits = append(waits, e.pinger.done)
	}
	if e.tx != nil {
		waits = append(waits, e.tx.reported)
	}
	if e.rx != nil {
		waits = append(waits, e.rx.done)
	}
	for _, c := range waits {
		select {
		case <-c:
		case <-ctx.Done():
			return fmt.Errorf("%s after %s: %w", e.spec.Kind, e.progress(), context.Cause(ctx))
		case <-e.conn.Done():
			return fmt.Errorf("%s after %s: %w", e.spec.Kind, e.progress(), e.reason(ended))
		case err := <-ended:
			return fmt.Errorf("%s after %s: %w", e.spec.Kind, e.progress(), err)
		}
	}
	return nil
}

// reason returns the reason for the end of the Conn: an event of the device, or that the other end has
// gone. If the other end has failed, its reason may be more useful.
func (e *end) reason(ended <-chan error) error {
	var event *device.EventError
	if errors.As(e.conn.Err(), &event) {
		return e.conn.Err()
	}
	patience := targetPatience
	if e.initiator {
		patience = initiatorPatience
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-ended:
		var bye *session.ByeError
		if errors.As(err, &bye) && bye.Code == session.CodeFailed {
			return fmt.Errorf("%w (%w)", e.conn.Err(), err)
		}
		return err
	case <-timer.C:
		return e.conn.Err()
	}
}

// Times to wait for the other end's reason. They differ, so that the ends do not wait for each other.
const (
	targetPatience    = 250 * time.Millisecond
	initiatorPatience = 2 * time.Second
)

// progress describes the progress of the measurement.
func (e *end) progress() string {
	n := e.count()
	if e.spec.Duration > 0 {
		return fmt.Sprintf("%d messages", n)
	}
	return fmt.Sprintf("%d of %d messages", n, e.spec.Iterations)
}

// count returns the number of messages that this end has timed, or sent if it only sends.
func (e *end) count() uint64 {
	switch {
	case e.pinger != nil:
		done := uint64(e.pinger.number.Load())
		return done - min(done, max(e.spec.WarmUp, 1))
	case e.ponger != nil:
		return e.ponger.echoed.Load()
	case e.rx != nil:
		return e.rx.count()
	}
	return e.sent()
}

func (e *end) sent() uint64 {
	n := uint64(0)
	for _, p := range e.floods {
		n += p.sent.Load()
	}
	return n
}

// close ends the measurement and releases everything. It is idempotent.
func (e *end) close() error {
	var err error
	e.closing.Do(func() {
		close(e.stop)
		e.workers.Wait()
		err = e.conn.Close()
		e.closePorts() // after the Conn, which uses them
	})
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	return nil
}

func (e *end) closePorts() {
	for _, p := range e.floods {
		p.close()
	}
	if e.pinger != nil {
		e.pinger.close()
	}
	if e.ponger != nil {
		e.ponger.close()
	}
}
