//go:build cgo

package attacks

import (
	"context"
	"errors"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/verbs"
)

// giveBack gives back a pool and waits until the I/O unit has withdrawn it.
func (s *Session) giveBack(ctx context.Context, pool int) error {
	if err := s.Send(protocol.AppendBufferPoolFlushRequest(nil, 7, s.Pools[pool].Ref|protocol.FlushGiveBack)); err != nil {
		return err
	}
	_, err := s.Message(ctx, protocol.FuncBufferPoolFlushReply)
	return err
}

// TestRDMAAttackMemory lets a host write to memory that was not lent to it. The attacker has a
// second session, whose addresses and keys it knows, so that it need not guess those of another
// host.
func TestRDMAAttackMemory(t *testing.T) {
	r := newFixture(t)
	to := r.attacker()
	device := to.Device.(*verbs.Context)
	traits, err := conform.TraitsOf(device.Driver(), testenv.KernelRelease(t), device.Limits())
	if err != nil {
		t.Fatal(err)
	}
	other, err := Open(t.Context(), to, "other", protocol.ModeImm)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	last, err := Open(t.Context(), to, "last", protocol.ModeImm)
	if err != nil {
		t.Fatal(err)
	}
	past := last.Pools[0]
	if err := last.Close(); err != nil {
		t.Fatal(err)
	}
	r.eventually(func() bool { return len(r.status().Hosts) == 2 }, "the end of a session")
	r.before = r.held() // including the resources of the second session
	end := func(p protocol.Pool) uint64 { return p.Addr + p.Bytes() }
	for _, tt := range []struct {
		name string
		at   func(s *Session) (addr uint64, key uint32)
	}{
		{"behind a pool", func(s *Session) (uint64, uint32) { return end(s.Pools[0]), s.Pools[0].RKey }},
		{"across the end of a pool", func(s *Session) (uint64, uint32) { return end(s.Pools[0]) - 63, s.Pools[0].RKey }},
		{"before a pool", func(s *Session) (uint64, uint32) { return s.Pools[0].Addr - 1, s.Pools[0].RKey }},
		{"to another host's pool with its key", func(*Session) (uint64, uint32) {
			return other.Pools[0].Addr,
				other.Pools[0].RKey
		}},
		{"to another host's pool with the own key",
			func(s *Session) (uint64, uint32) { return other.Pools[0].Addr, s.Pools[0].RKey }},
		{"to a pool that was given back", func(s *Session) (uint64, uint32) {
			if err := s.giveBack(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			return s.Pools[0].Addr, s.Pools[0].RKey
		}},
		{"to a pool of a session that has ended", func(*Session) (uint64, uint32) { return past.Addr, past.RKey }},
		{"with the key of the region before", func(s *Session) (uint64, uint32) {
			return s.Pools[0].Addr,
				s.Pools[0].RKey - 1<<8
		}},
		{"with the key of the region behind", func(s *Session) (uint64, uint32) {
			return s.Pools[0].Addr,
				s.Pools[0].RKey + 1<<8
		}},
		{"with one bit of the key wrong", func(s *Session) (uint64, uint32) { return s.Pools[0].Addr, s.Pools[0].RKey ^ 1 }},
	} {
		r.sub(tt.name, func(t *testing.T) {
			refused := r.since(ended("queue-pair"))
			s, err := Open(t.Context(), to, "attacker", protocol.ModeImm)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			addr, key := tt.at(s)
			var failed *fabric.WCError
			if err := s.RDMAWrite(t.Context(), fabric.OpWriteImm, addr, key, make([]byte, 64)); !errors.As(err, &failed) ||
				failed.Status != fabric.StatusRemAccessErr && !traits.Lost(failed.Status) {
				t.Errorf("the device says: %v", err)
			}
			if bye, err := s.Ended(); err != nil || bye == nil || bye.Code != "failed" {
				t.Errorf("the I/O unit says %v: %v", bye, err)
			}
			r.eventually(func() bool { return refused() == 1 }, "a session counted that ended with its queue pair")
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if err := other.Alive(t.Context()); err != nil {
				t.Errorf("the other session: %v", err)
			}
			r.unharmed()
		})
	}
	thirdParty(r, other)
	// The memory of the other session is unchanged: a frame that is written there now is handled as
	// usual, and is the first one.
	if err := other.Frame(t.Context(), broadcast(other.Welcome.MAC)); err != nil {
		t.Fatal(err)
	}
	r.eventually(func() bool { return r.hostStatistic("other", "tx_frames") == 1 }, "one frame of the other session")
	if s := r.status(); len(s.Hosts) != 2 || len(s.Violations) != 0 {
		t.Errorf("%+v", s)
	}
}

// thirdParty lets queue pairs without a session write to another host's pool. The attacker knows
// the address of the I/O unit's queue pair and the key, but not the packet sequence number.
func thirdParty(r *fixture, victim *Session) {
	for _, name := range []string{hostDevice, unitDevice} { // the victim's own address, and another
		for channel, what := range []string{"control channel", "data channel"} {
			r.sub("third party on "+name+", "+what, func(t *testing.T) {
				stranger, err := newQueues(open(t, name))
				if err != nil {
					t.Fatal(err)
				}
				defer stranger.Close()
				if err := stranger.Data[0].Connect(victim.Welcome.Channels[channel].Address(),
					fabric.Timing{Timeout: 12, RetryCount: 1}); err != nil {
					t.Fatal(err)
				}
				pool, frame := victim.Pools[0], broadcast(victim.Welcome.MAC)
				wr := fabric.SendWR{
					Op: fabric.OpWriteImm, RemoteAddr: pool.Addr, RKey: pool.RKey,
					Imm: uint32(protocol.PackImm(uint8(pool.Ref), 0, uint16(len(frame)))),
				}
				if err := stranger.Post(stranger.Data[0], wr, frame); err != nil {
					t.Fatal(err)
				}
				var failed *fabric.WCError
				if err := stranger.Completed(t.Context()); !errors.As(err, &failed) {
					t.Errorf("the stranger hears: %v", err)
				}
				if err := errors.Join(victim.Alive(t.Context()), stranger.Close()); err != nil {
					t.Error(err)
				}
				r.unharmed()
			})
		}
	}
}
