package messaging

import (
	"context"
	"time"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/protocol"
)

// starvation is what the pool manager remembers of a channel: whether its sender
// lacks credits.
type starvation struct {
	noCredit uint64 // the sender's counter at the last look
	held     uint64 // the receiver's counter when the peer last asked for a pool
	looks    int    // in a row that found the sender asleep without credit
}

const (
	// shortages is how often, from one look to the next, a sender has to be
	// without a credit for more memory to be worth while.
	shortages = 16
	// sentAfter is how long a sender on an unreliable channel has no credit
	// before it suspects that messages were lost.
	sentAfter = 50 * time.Millisecond
)

// interval is how often the manager looks around.
func (m *poolManager) interval() time.Duration {
	if m.c.cfg.Mode == protocol.ModeSendUC {
		return sentAfter / 2
	}
	return min(250*time.Millisecond, m.c.cfg.PoolIdle/4)
}

// look is what the manager does from time to time.
func (m *poolManager) look() error {
	if m.c.cfg.Mode == protocol.ModeSendUC {
		m.rescue()
	}
	if m.c.cfg.Mode.Sends() {
		return nil
	}
	tight := m.c.cfg.Budget != nil && m.c.cfg.Budget.tight()
	if err := m.step(bufpool.Event{Kind: bufpool.Tick, Tight: tight}); err != nil {
		return err
	}
	for i, ch := range m.c.channels {
		n := ch.tx.count.TxNoCredit.Load()
		starving := n-m.channels[i].noCredit >= shortages
		m.channels[i].noCredit = n
		if starving {
			if err := m.need(ch); err != nil {
				return err
			}
		}
	}
	return nil
}

// nudge tells the manager that a frame fits no pool. It never waits.
func (m *poolManager) nudge() { raise(m.short) }

// needLarger is about senders with a frame that fits no pool.
func (m *poolManager) needLarger() error {
	for _, ch := range m.c.channels {
		if !ch.tx.fitsNowhere(int(ch.tx.short.Load())) {
			continue
		}
		if err := m.need(ch); err != nil {
			return err
		}
	}
	return nil
}

// need has the pools hear what a channel's sender lacks.
func (m *poolManager) need(ch *channel) error {
	return m.step(bufpool.Event{Kind: bufpool.Needed, Channel: ch.number, Size: int(ch.tx.short.Load()), Now: time.Now()})
}

// rescue tells the peer how much was sent on channels that may lose messages,
// when the credits of all of them are gone.
func (m *poolManager) rescue() {
	for i, ch := range m.c.channels {
		// Before it is seen asleep, when nothing that has a number is not posted.
		next := ch.tx.out.sequence.Load()
		s, n := &m.channels[i], ch.tx.count.TxNoCredit.Load()
		if !ch.tx.hungry.Load() || n != s.noCredit {
			s.noCredit, s.looks = n, 0
			continue
		}
		if s.looks++; s.looks != int(sentAfter/m.interval()) {
			continue
		}
		s.looks = 0
		sent := protocol.Sent{Channel: uint32(ch.number), Next: next}
		m.c.background.Go(func() {
			// How it is answered does not matter: it is asked again.
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, _ = m.c.Request(ctx, protocol.CfgSent, protocol.AppendSent(nil, sent))
		})
	}
}
