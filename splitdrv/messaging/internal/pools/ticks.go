package pools

import (
	"context"
	"time"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/internal/wake"
	"github.com/splitnic/splitnic/protocol"
)

const (
	// shortages is how often a sender has to be without a credit, from one tick to the next,
	// before the manager asks for another pool.
	shortages = 16
)

// beats is the ticker of the pool managers of all sessions of the process.
var beats ticker.Ticker

// Start starts the ticks of the manager.
func (m *Manager) Start() {
	m.beat.Store(beats.Every(m.interval, func(ticker.Tick) int {
		if m.c.Stopped.Load() {
			return ticker.MaxRest
		}
		quiet, err := m.Tick()
		if err != nil {
			m.c.EndLater(err)
		}
		if quiet {
			return ticker.MaxRest
		}
		return 0
	}))
}

// Stop ends the ticks. Start need not have been called.
func (m *Manager) Stop() { m.beat.Load().Stop() }

// Run is the manager's goroutine.
func (m *Manager) Run() error {
	for {
		var err error
		select {
		case <-m.c.Done:
			return nil
		case <-m.queued:
			err = m.work()
		case <-m.needs:
			m.beat.Load().Wake()
			err = m.supply()
		}
		if err != nil {
			return err
		}
	}
}

// Tick is called at each tick. It reports whether the next ticks can be left out, until
// WakeTicks or WakeForNeeds is called.
func (m *Manager) Tick() (quiet bool, err error) {
	// Set before anything is read, so that a change that is not seen here calls WakeTicks.
	m.Resting.Store(m.beat.Load() != nil)
	quiet, err = m.tick()
	if !quiet {
		m.Resting.Store(false)
	}
	return quiet && m.Resting.Load(), err
}

// tick does the work of a tick. It reports true if there was nothing to do, and
// nothing had changed since the last tick.
func (m *Manager) tick() (quiet bool, err error) {
	quiet = true
	for _, ch := range m.channels {
		if ch.Sender.Slots.lacking() {
			wake.Up(m.needs)
			quiet = false
		}
	}
	if m.c.Mode.Lossy() {
		m.rescue()
		quiet = false
	}
	if m.c.Mode.Sends() {
		return quiet, nil
	}
	if m.extra() {
		quiet = false
		tight := m.o.Budget != nil && m.o.Budget.Tight()
		if err := m.Notify(bufpool.Event{Kind: bufpool.Tick, Tight: tight}); err != nil {
			return false, err
		}
	}
	for _, ch := range m.channels {
		n := ch.Sender.Count.TxNoCredit.Load()
		quiet = quiet && n == ch.noCredit
		starving := n-ch.noCredit >= shortages
		ch.noCredit = n
		if starving {
			if err := m.need(ch); err != nil {
				return false, err
			}
		}
	}
	return quiet, nil
}

// extra reports whether there are pools that end when they are idle.
func (m *Manager) extra() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pools.Extra()
}

// supply registers more slots for the senders that want them, and asks for pools for the
// senders with a frame that fits none.
func (m *Manager) supply() error {
	for _, ch := range m.channels {
		m.moreSlots(ch)
		if !ch.Sender.FitsNowhere(int(ch.Sender.Lacking.Load())) {
			continue
		}
		if err := m.need(ch); err != nil {
			return err
		}
	}
	return nil
}

// moreSlots registers the send slots that a channel's sender wants. If there is no memory,
// it is tried again at the next tick.
func (m *Manager) moreSlots(ch *Channel) {
	s := ch.Sender.Slots
	if !s.lacking() {
		return
	}
	if s.register(m.c, int(s.wanted.Load()-s.made.Load()), false) != nil {
		return // the sender continues with the slots that it has
	}
	ch.Sender.Queue.Wake()
}

// need tells the pools which element a channel's sender lacks.
func (m *Manager) need(ch *Channel) error {
	size := int(ch.Sender.Lacking.Load())
	return m.Notify(bufpool.Event{Kind: bufpool.Needed, Channel: ch.number, Size: size, Now: time.Now()})
}

// rescue tells the peer how much was sent on each channel that may have lost messages: a
// channel of mode send-uc whose sender has been without credit for sentAfter.
func (m *Manager) rescue() {
	for _, ch := range m.channels {
		// Read the number before checking that the sender sleeps: then all messages below
		// the number are posted.
		next := ch.Sender.Sequence.Load()
		n := ch.Sender.Count.TxNoCredit.Load()
		if !ch.Sender.Waiting.Load() || n != ch.noCredit {
			ch.noCredit, ch.asleep = n, 0
			continue
		}
		if ch.asleep++; ch.asleep != int(sentAfter/m.interval) {
			continue
		}
		ch.asleep = 0
		sent := protocol.Sent{Channel: uint32(ch.number), Next: next}
		m.c.Background.Go(func() {
			// The answer does not matter, because the request is repeated.
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, _ = m.requests.Request(ctx, protocol.CfgSent, protocol.AppendSent(nil, sent))
		})
	}
}
