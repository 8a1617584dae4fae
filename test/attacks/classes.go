package attacks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// Class is an attack of any duration.
type Class struct {
	Name string
	What string // description for people
	// Run attacks until ctx is done, which is not an error. done counts the completed attacks.
	Run func(ctx context.Context, to Target, done *atomic.Uint64) error
}

// Classes returns all classes.
func Classes() []Class {
	return []Class{
		{"stall", "a thousand TCP connections that say nothing, made anew as they are dropped", stallMany},
		{"strangers", "TLS handshakes with a key that nobody trusts, as fast as they go, 16 at a time", strangers},
		{"heartbeats", "heartbeats on the bootstrap connection of a session, as fast as they go", heartbeats},
		{"keep-alives", "keep-alives on the control channel, as fast as they are answered", keepAlives},
		{"requests", "changes of the receive filter, as fast as they are answered", filters},
		{"address", "changes of the MAC address, as fast as they are answered", addresses},
		{"up-down", "the port set down and up, as fast as that is answered", upDown},
		{"lend", "pools of 65536 elements lent and taken back, as fast as they come back, in 3 sessions", lend},
		{"hellos", "sessions asked for and dropped when they are granted, as fast as they go, 4 at a time", hellos},
		{"sessions", "sessions opened and dropped, as fast as they go", sessions},
		{"keys", "sessions that each try a key for another memory", keys},
		{"frames", "frames with somebody else's address, as fast as there are elements", frames},
		{"segments", "super-frames that are to be cut into segments of 8 bytes, and of 48, as fast as there are elements",
			segments},
		{"floods", "more control messages than there are receives, each time ending the session", floods},
	}
}

// ClassOf returns the class with this name.
func ClassOf(name string) (c Class, ok bool) {
	i := slices.IndexFunc(Classes(), func(c Class) bool { return c.Name == name })
	if i < 0 {
		return c, false
	}
	return Classes()[i], true
}

// again repeats an attack until ctx is done. An attack whose session is refused for the moment, or
// because there are too many, is repeated at once, and not counted.
func again(ctx context.Context, done *atomic.Uint64, attack func() error) error {
	for ctx.Err() == nil {
		err := attack()
		var no *Refusal
		switch {
		case err == nil:
			done.Add(1)
		case !errors.As(err, &no) || !no.of(busy, full):
			return unless(ctx, err)
		}
	}
	return nil
}

// unless returns err, or nil if ctx is done, which is then the cause of err.
func unless(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func stallMany(ctx context.Context, to Target, done *atomic.Uint64) error {
	const open = 1000
	var held [open]net.Conn
	defer func() {
		for _, nc := range held {
			if nc != nil {
				nc.Close()
			}
		}
	}()
	i := 0
	return again(ctx, done, func() error {
		nc, err := Dial(ctx, to.Address, to.From)
		if err != nil {
			return err
		}
		if held[i] != nil {
			held[i].Close()
		}
		held[i] = nc
		i = (i + 1) % open
		return nil
	})
}

func strangers(ctx context.Context, to Target, done *atomic.Uint64) error {
	key, err := NewKey()
	if err != nil {
		return err
	}
	return together(16, func(int) error {
		return again(ctx, done, func() error {
			nc, err := Dial(ctx, to.Address, to.From)
			if err != nil {
				return err
			}
			defer nc.Close()
			_, _ = Handshake(ctx, nc, key) // the result does not matter
			return nil
		})
	})
}

// together runs n attacks at the same time.
func together(n int, attack func(i int) error) error {
	var workers errgroup.Group
	for i := range n {
		workers.Go(func() error { return attack(i) })
	}
	return workers.Wait()
}

func hellos(ctx context.Context, to Target, done *atomic.Uint64) error {
	return together(4, func(i int) error {
		return again(ctx, done, func() error {
			err := Ask(ctx, to, fmt.Sprintf("hello-%d", i))
			var no *Refusal
			if errors.As(err, &no) && no.Type == "refuse" && no.Code != busy {
				return nil
			}
			return err
		})
	})
}

// openInTime opens a session as soon as it is not refused with one of these codes.
func openInTime(ctx context.Context, to Target, name string, codes ...string) (*Session, error) {
	for {
		s, err := Open(ctx, to, name, protocol.ModeImm)
		var no *Refusal
		if !errors.As(err, &no) || !no.of(codes...) || ctx.Err() != nil {
			return s, err
		}
	}
}

// within opens a session as a host with this name, and attacks in it until ctx is done: for the nth time,
// from 1 on.
func within(
	ctx context.Context, to Target, name string, done *atomic.Uint64, attack func(s *Session, n int) error,
) error {
	s, err := openInTime(ctx, to, name, busy, full)
	if err != nil {
		return unless(ctx, err)
	}
	n := 0
	err = again(ctx, done, func() error {
		n++
		return attack(s, n)
	})
	return errors.Join(err, s.Close())
}

func heartbeats(ctx context.Context, to Target, done *atomic.Uint64) error {
	s, err := openInTime(ctx, to, "flood", busy, full)
	if err != nil {
		return unless(ctx, err)
	}
	s.SetDeadline(time.Time{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			// When the I/O unit does not read, this waits until Close.
			if _, err := s.Connection.Write(make([]byte, 4*heartbeatsInOne)); err != nil {
				return
			}
			done.Add(heartbeatsInOne)
		}
	})
	// Meanwhile the control channel works correctly.
	err = unless(ctx, s.Until(ctx, func() bool { return false }))
	err = errors.Join(err, s.Close())
	writer.Wait()
	return err
}

// heartbeatsInOne is the number of heartbeats in one write.
const heartbeatsInOne = 100

func keepAlives(ctx context.Context, to Target, done *atomic.Uint64) error {
	return within(ctx, to, "flood", done, func(s *Session, _ int) error { return s.Alive(ctx) })
}

func filters(ctx context.Context, to Target, done *atomic.Uint64) error {
	return within(ctx, to, "flood", done, func(s *Session, n int) error {
		var f protocol.ReceiveFilter
		for i := range 8 {
			f.Multicast = append(f.Multicast, protocol.Group{1, 0, 0x5e, byte(n), byte(n >> 8), byte(i)})
		}
		_, err := s.Request(ctx, protocol.CfgFilter, protocol.AppendReceiveFilter(nil, f))
		return err
	})
}

// addresses alternates between two addresses. If the policy permits only one of them, every other
// change is refused.
func addresses(ctx context.Context, to Target, done *atomic.Uint64) error {
	return within(ctx, to, "flood", done, func(s *Session, n int) error {
		mac := s.Welcome.MAC
		mac[5] ^= byte(n & 1)
		_, err := s.Request(ctx, protocol.CfgMAC, protocol.AppendMAC(nil, mac))
		return err
	})
}

func upDown(ctx context.Context, to Target, done *atomic.Uint64) error {
	return within(ctx, to, "flood", done, func(s *Session, n int) error {
		_, err := s.Request(ctx, protocol.CfgLinkState, protocol.AppendLinkState(nil, protocol.LinkState{Up: n%2 == 0}))
		return err
	})
}

func lend(ctx context.Context, to Target, done *atomic.Uint64) error {
	return together(3, func(i int) error {
		return within(ctx, to, fmt.Sprintf("lend-%d", i), done, func(s *Session, _ int) error {
			return s.LendAndTakeBack(ctx, protocol.MaxPoolElements)
		})
	})
}

// churn opens one session after another, and attacks in each of them once.
func churn(ctx context.Context, to Target, name string, done *atomic.Uint64, attack func(s *Session) error) error {
	return again(ctx, done, func() error {
		s, err := Open(ctx, to, name, protocol.ModeImm)
		if err != nil {
			return err
		}
		return errors.Join(attack(s), s.Close())
	})
}

func sessions(ctx context.Context, to Target, done *atomic.Uint64) error {
	return churn(ctx, to, "churn", done, func(*Session) error { return nil })
}

func keys(ctx context.Context, to Target, done *atomic.Uint64) error {
	key := uint32(0)
	return churn(ctx, to, "guess", done, func(s *Session) error {
		key += 0x101
		err := s.RDMAWrite(ctx, fabric.OpWrite, s.Pools[0].Addr, s.Pools[0].RKey+key, make([]byte, 64))
		if errors.As(err, new(*fabric.WCError)) {
			// Wait for the I/O unit to end the session. If the attacker left before, that would
			// be the reason of the session's end.
			_, err = s.Ended()
		} else if err == nil {
			err = fmt.Errorf("the device took key %#x", s.Pools[0].RKey+key)
		}
		return err
	})
}

func frames(ctx context.Context, to Target, done *atomic.Uint64) error {
	frame := make([]byte, vnet.HdrLen+60)
	copy(frame[vnet.HdrLen:], "\xff\xff\xff\xff\xff\xff\x01\x00\x00\x00\x00\x01\x88\xb5")
	return within(ctx, to, "flood", done, func(s *Session, _ int) error { return s.Frame(ctx, frame) })
}

func segments(ctx context.Context, to Target, done *atomic.Uint64) error {
	var frames [][]byte
	return within(ctx, to, "flood", done, func(s *Session, n int) error {
		if frames == nil {
			// Super-frames with segments of 8 bytes are dropped; 48 is the least that passes.
			frames = [][]byte{SuperFrame(s.Welcome.MAC, 60_000, 8), SuperFrame(s.Welcome.MAC, 60_000, 48)}
		}
		return s.Frame(ctx, frames[n%len(frames)])
	})
}

func floods(ctx context.Context, to Target, done *atomic.Uint64) error {
	return churn(ctx, to, "flood", done, func(s *Session) error { return Flood(ctx, s, 500) })
}

// Flood sends n requests without waiting for an answer, and waits until the I/O unit has ended the
// session because of this.
func Flood(ctx context.Context, s *Session, n int) error {
	msg := protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{Type: protocol.CfgKeepAlive})
	for range n {
		if err := s.Send(msg); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { s.TCP.Close() })
	defer stop()
	_, err := s.Ended() // the queue pairs fail later
	return err
}
