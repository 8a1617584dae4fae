package messaging

import (
	"context"
	"time"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/protocol"
)

const (
	// shortages is how often, from one look to the next, a sender has to be
	// without a credit for more memory to be worth while.
	shortages = 16
)

// start has the manager look around from time to time, which takes no goroutine.
func (m *poolManager) start() {
	m.beat.Store(poolBeats.Every(poolInterval(&m.c.cfg), func(ticker.Tick) int {
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

// look is what the manager does from time to time. It reports whether there is nothing for
// the next looks to do before somebody calls stir or nudge.
func (m *poolManager) look() (quiet bool, err error) {
	// Before anything is read: what changes behind that is told.
	m.resting.Store(m.beat.Load() != nil)
	quiet, err = m.lookAround()
	if !quiet {
		m.resting.Store(false)
	}
	return quiet && m.resting.Load(), err
}

// lookAround reports whether it found nothing to do, nor anything that had changed since the
// last look.
func (m *poolManager) lookAround() (quiet bool, err error) {
	quiet = true
	for i := range m.channels {
		if m.channels[i].slots.lacking() {
			raise(m.short)
			quiet = false
		}
	}
	if m.c.cfg.Mode == protocol.ModeSendUC {
		m.rescue()
		quiet = false
	}
	if m.c.cfg.Mode.Sends() {
		return quiet, nil
	}
	if m.extra() {
		quiet = false
		tight := m.c.cfg.Budget != nil && m.c.cfg.Budget.tight()
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

// extra reports whether there are pools that go when they are idle.
func (m *poolManager) extra() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pools.Extra()
}

// supply is about senders that want more slots, or have a frame that fits no pool.
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

// moreSlots registers the send slots that a channel's sender wants. Where memory is not
// to be had it is tried again when the manager looks around next.
func (m *poolManager) moreSlots(ch *poolChannel) {
	s := ch.slots
	if !s.lacking() {
		return
	}
	n := s.wanted.Load() - s.made.Load()
	mem, key, err := s.register(m.c, int(n), false)
	if err != nil {
		return // the sender carries on with what it has
	}
	s.made.Add(n)
	ch.sender.put(sqRequest{kind: sqSlots, mem: mem, key: key})
}

// need has the pools hear what a channel's sender lacks.
func (m *poolManager) need(ch *poolChannel) error {
	size := int(ch.credits.short.Load())
	return m.notify(bufpool.Event{Kind: bufpool.Needed, Channel: ch.number, Size: size, Now: time.Now()})
}

// rescue tells the peer how much was sent on channels that may lose messages,
// when the credits of all of them are gone.
func (m *poolManager) rescue() {
	for i := range m.channels {
		s := &m.channels[i]
		// Before it is seen asleep, when nothing that has a number is not posted.
		next := s.sequence.Load()
		n := s.tx.TxNoCredit.Load()
		if !s.credits.waiting.Load() || n != s.noCredit {
			s.noCredit, s.looks = n, 0
			continue
		}
		if s.looks++; s.looks != int(sentAfter/poolInterval(&m.c.cfg)) {
			continue
		}
		s.looks = 0
		sent := protocol.Sent{Channel: uint32(s.number), Next: next}
		m.c.background.Go(func() {
			// How it is answered does not matter: it is asked again.
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, _ = m.requests.request(ctx, protocol.CfgSent, protocol.AppendSent(nil, sent))
		})
	}
}
