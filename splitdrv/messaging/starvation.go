package messaging

import (
	"context"
	"time"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/protocol"
)

const (
	// shortages is how often a sender has to be without a credit, from one tick to the next,
	// before the manager asks for another pool.
	shortages = 16
)

// poolBeats is the ticker of the pool managers of all sessions of the process.
var poolBeats ticker.Ticker

// start starts the ticks of the manager.
func (m *poolManager) start() {
	m.beat.Store(poolBeats.Every(m.interval, func(ticker.Tick) int {
		if m.c.stopped.Load() {
			return ticker.MaxRest
		}
		quiet, err := m.look()
		if err != nil {
			m.c.endLater(err)
		}
		if quiet {
			return ticker.MaxRest
		}
		return 0
	}))
}

// run is the manager's goroutine.
func (m *poolManager) run() error {
	for {
		var err error
		select {
		case <-m.c.done:
			return nil
		case <-m.kick:
			err = m.work()
		case <-m.short:
			m.beat.Load().Wake()
			err = m.supply()
		}
		if err != nil {
			return err
		}
	}
}

// look is called at each tick. It reports whether the next ticks can be left out, until
// stir or nudge is called.
func (m *poolManager) look() (quiet bool, err error) {
	// Set before anything is read, so that a change that is not seen here calls stir.
	m.resting.Store(m.beat.Load() != nil)
	quiet, err = m.lookAround()
	if !quiet {
		m.resting.Store(false)
	}
	return quiet && m.resting.Load(), err
}

// lookAround does the work of a tick. It reports true if there was nothing to do, and
// nothing had changed since the last tick.
func (m *poolManager) lookAround() (quiet bool, err error) {
	quiet = true
	for i := range m.channels {
		if m.channels[i].slots.lacking() {
			raise(m.short)
			quiet = false
		}
	}
	if m.c.mode == protocol.ModeSendUC {
		m.rescue()
		quiet = false
	}
	if m.c.mode.Sends() {
		return quiet, nil
	}
	if m.extra() {
		quiet = false
		tight := m.o.Budget != nil && m.o.Budget.tight()
		if err := m.notify(bufpool.Event{Kind: bufpool.Tick, Tight: tight}); err != nil {
			return false, err
		}
	}
	for i := range m.channels {
		ch := &m.channels[i]
		n := ch.tx.TxNoCredit.Load()
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
func (m *poolManager) extra() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pools.Extra()
}

// supply registers more slots for the senders that want them, and asks for pools for the
// senders with a frame that fits none.
func (m *poolManager) supply() error {
	for i := range m.channels {
		ch := &m.channels[i]
		m.moreSlots(ch)
		if !ch.credits.fitsNowhere(int(ch.credits.short.Load())) {
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
func (m *poolManager) moreSlots(ch *poolChannel) {
	s := ch.slots
	if !s.lacking() {
		return
	}
	n := s.wanted.Load() - s.made.Load()
	mem, key, err := s.register(m.c, int(n), false)
	if err != nil {
		return // the sender continues with the slots that it has
	}
	s.made.Add(n)
	ch.sender.put(sqRequest{kind: sqSlots, mem: mem, key: key})
}

// need tells the pools which element a channel's sender lacks.
func (m *poolManager) need(ch *poolChannel) error {
	size := int(ch.credits.short.Load())
	return m.notify(bufpool.Event{Kind: bufpool.Needed, Channel: ch.number, Size: size, Now: time.Now()})
}

// rescue tells the peer how much was sent on each channel that may have lost messages: a
// channel of mode send-uc whose sender has been without credit for sentAfter.
func (m *poolManager) rescue() {
	for i := range m.channels {
		s := &m.channels[i]
		// Read the number before checking that the sender sleeps: then all messages below
		// the number are posted.
		next := s.sequence.Load()
		n := s.tx.TxNoCredit.Load()
		if !s.credits.waiting.Load() || n != s.noCredit {
			s.noCredit, s.looks = n, 0
			continue
		}
		if s.looks++; s.looks != int(sentAfter/m.interval) {
			continue
		}
		s.looks = 0
		sent := protocol.Sent{Channel: uint32(s.number), Next: next}
		m.c.background.Go(func() {
			// The answer does not matter, because the request is repeated.
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, _ = m.requests.request(ctx, protocol.CfgSent, protocol.AppendSent(nil, sent))
		})
	}
}
