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

	ports  []port
	tx     *sending   // nil if it sends no flood
	rx     *receiving // nil if it receives no flood
	pinger *pinger    // nil if it sends no pings

	// gone is closed when the other end has gone, for the reason that why returns.
	gone <-chan struct{}
	why  func() error

	stop    chan struct{}
	workers sync.WaitGroup
	closing sync.Once
}

// newEnd makes the channels and ports of an end. The Spec completes c.
func newEnd(s Spec, c messaging.Config, initiator bool) (_ *end, err error) {
	e := &end{spec: s, initiator: initiator, stop: make(chan struct{})}
	defer func() {
		if err != nil {
			e.closePorts()
		}
	}()
	if s.Kind != Lat && (initiator || s.Bidirectional) {
		e.tx = newSending(&s)
	}
	if s.Kind != Lat && (!initiator || s.Bidirectional) {
		e.rx = newReceiving()
	}
	for range s.Queues {
		g, err := newGate(&s)
		if err != nil {
			return nil, err
		}
		e.ports = append(e.ports, e.newPort(g))
	}
	e.conn, err = messaging.New(s.messaging(c))
	return e, err
}

func (e *end) newPort(g *gate) port {
	switch {
	case e.spec.Kind != Lat:
		return newFlood(&e.spec, g, e.tx, e.rx)
	case !e.initiator:
		return newPonger(g)
	}
	e.pinger = newPinger(&e.spec, g)
	return e.pinger
}

// start begins the measurement. The channels of both ends must be connected. watch, if it is not
// nil, is called with the progress.
func (e *end) start(watch func(Progress)) error {
	var ports []messaging.Port
	for _, p := range e.ports {
		ports = append(ports, p)
	}
	if err := e.conn.Start(ports); err != nil {
		return err
	}
	e.workers.Go(e.runRelease)
	if e.rx != nil {
		e.workers.Go(func() { e.rx.sample(e.stop) })
	}
	if e.spec.Mode.Lossy() {
		e.workers.Go(e.runAgain)
	}
	if watch != nil {
		e.workers.Go(func() { e.runWatch(watch) })
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
	for _, p := range e.ports {
		p.release()
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

// runAgain sends the last messages, and frames of round trips, again if they seem lost.
func (e *end) runAgain() {
	tick := time.NewTicker(lostAfter)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-e.stop:
			return
		}
		for _, p := range e.ports {
			p.again()
		}
	}
}

// wait returns nil when the initiator has its result, and an error if ctx is done, or if the Conn or the
// other end ends. A target waits for one of these.
func (e *end) wait(ctx context.Context) error {
	waits := []<-chan struct{}{nil}
	if e.initiator {
		waits = e.results()
	}
	for _, c := range waits {
		var err error
		select {
		case <-c:
			continue
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-e.conn.Done():
			err = e.reason()
		case <-e.gone:
			err = e.why()
		}
		return fmt.Errorf("%s after %s: %w", e.spec.Kind, e.progress(), err)
	}
	return nil
}

// results returns what is closed when an initiator has the parts of its result.
func (e *end) results() []<-chan struct{} {
	switch {
	case e.pinger != nil:
		return []<-chan struct{}{e.pinger.done}
	case e.rx != nil:
		return []<-chan struct{}{e.tx.reported, e.rx.done}
	default:
		return []<-chan struct{}{e.tx.reported}
	}
}

// reason returns the reason for the end of the Conn: an event of the device, or that the other end has
// gone. If the other end has failed, its reason may be more useful.
func (e *end) reason() error {
	var event *device.EventError
	if errors.As(e.conn.Err(), &event) {
		return e.conn.Err()
	}
	patience := targetPatience
	if e.initiator {
		patience = initiatorPatience
	}
	select {
	case <-e.gone:
	case <-time.After(patience):
		return e.conn.Err()
	}
	err := e.why()
	var bye *session.ByeError
	if errors.As(err, &bye) && bye.Code == session.CodeFailed {
		return fmt.Errorf("%w (%w)", e.conn.Err(), err)
	}
	return err
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
func (e *end) count() (n uint64) {
	for _, p := range e.ports {
		n += p.count()
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
	for _, p := range e.ports {
		_ = p.Close() // of an eventfd: cannot fail
	}
}

// progressInterval is the interval at which a measurement reports its progress.
const progressInterval = time.Second

// Progress is the progress of a measurement.
type Progress struct {
	Spec     Spec
	Messages uint64        // timed, or sent if this end only sends
	Time     time.Duration // since the first message, approximately
	Rate     float64       // of messages per second since the last Progress
}

// runWatch calls watch with the progress.
func (e *end) runWatch(watch func(Progress)) {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	begin := time.Now()
	then, before := begin, uint64(0)
	for {
		select {
		case <-e.stop:
			return
		case <-tick.C:
		}
		now, count := time.Now(), e.count()
		watch(Progress{e.spec, count, now.Sub(begin), float64(count-before) / now.Sub(then).Seconds()})
		then, before = now, count
	}
}
