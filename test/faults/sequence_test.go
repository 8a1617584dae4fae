package faults

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

// Counts has the counts of datagrams of a sequence at its receiver, or at its sender, which counts
// only Sent.
type Counts struct {
	Sent     uint64
	Received uint64 // without doubled ones
	Doubled  uint64 // had arrived before
	Wrong    uint64 // contents differ from what was sent
	Late     uint64 // arrived after a datagram with a higher number
}

// sequence is one end of a flow of numbered datagrams.
type sequence struct {
	c    *net.UDPConn
	stop chan struct{}
	done chan struct{}

	mu     sync.Mutex
	counts Counts
	seen   map[uint64]bool
	top    uint64 // the highest number that has arrived, plus one
}

// datagram returns datagram number n in b. Its length and contents depend on n.
func datagram(b []byte, n uint64) []byte {
	size := 16 + int(n*241%1440)
	b = b[:size]
	binary.BigEndian.PutUint64(b, n)
	for i := 8; i < size; i++ {
		b[i] = byte(n>>(i%5)) ^ byte(i*29)
	}
	return b
}

// arrived counts a datagram b that has arrived. room is memory for the datagram to compare with.
func (s *sequence) arrived(b, room []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(b) < 16 {
		s.counts.Wrong++
		return
	}
	n := binary.BigEndian.Uint64(b)
	if !bytes.Equal(b, datagram(room[:cap(room)], n)) {
		s.counts.Wrong++
		return
	}
	if s.seen[n] {
		s.counts.Doubled++
		return
	}
	s.seen[n] = true
	s.counts.Received++
	if n < s.top {
		s.counts.Late++
	} else {
		s.top = n + 1
	}
}

func (s *sequence) receive() {
	defer close(s.done)
	b, room := make([]byte, 65536), make([]byte, 2048)
	for {
		n, err := s.c.Read(b)
		if err != nil {
			return // the socket was closed
		}
		s.arrived(b[:n], room)
	}
}

// send sends rate datagrams a second, in bursts of eight, until stop is closed. A datagram that the
// kernel does not accept is not counted as sent, and is sent again.
func (s *sequence) send(rate int) {
	defer close(s.done)
	const atOnce = 8
	tick := time.NewTicker(atOnce * time.Second / time.Duration(rate))
	defer tick.Stop()
	room := make([]byte, 2048)
	for {
		for range atOnce {
			s.mu.Lock()
			n := s.counts.Sent
			s.mu.Unlock()
			if _, err := s.c.Write(datagram(room, n)); err != nil {
				break
			}
			s.mu.Lock()
			s.counts.Sent++
			s.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-s.stop:
			return
		}
	}
}

func (f *flows) addSequence(s *sequence) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sequences = append(f.sequences, s)
	return len(f.sequences) - 1
}

func (f *flows) sequence(id int) (*sequence, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if id < 0 || id >= len(f.sequences) {
		return nil, fmt.Errorf("no sequence has the number %d", id)
	}
	return f.sequences[id], nil
}

// Receive starts to receive a sequence.
func (a *agent) Receive(f Flow, r *Flowing) error {
	s := &sequence{seen: map[uint64]bool{}, stop: make(chan struct{}), done: make(chan struct{})}
	err := netns.Do(f.NS, func() error {
		c, err := net.ListenPacket("udp", f.Addr)
		if err == nil {
			s.c = c.(*net.UDPConn)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := forceReadBuffer(s.c, 8<<20); err != nil {
		return err
	}
	go s.receive()
	r.ID, r.Addr = a.flows.addSequence(s), s.c.LocalAddr().String()
	return nil
}

// forceReadBuffer sets the receive buffer of c to n bytes, which needs root.
func forceReadBuffer(c *net.UDPConn, n int) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, n) })
	if err == nil {
		err = set
	}
	if err != nil {
		return fmt.Errorf("a socket with a buffer of %d bytes: %w", n, err)
	}
	return nil
}

// Send starts to send a sequence.
func (a *agent) Send(f Flow, r *Flowing) error {
	s := &sequence{stop: make(chan struct{}), done: make(chan struct{})}
	err := netns.Do(f.NS, func() error {
		c, err := net.Dial("udp", f.Addr)
		if err == nil {
			s.c = c.(*net.UDPConn)
		}
		return err
	})
	if err != nil {
		return err
	}
	go s.send(f.Rate)
	r.ID = a.flows.addSequence(s)
	return nil
}

// Counts returns what a sequence has counted so far.
func (a *agent) Counts(id int, c *Counts) error {
	s, err := a.flows.sequence(id)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	*c = s.counts
	return nil
}

// EndSequence ends a sequence and returns what it has counted.
func (a *agent) EndSequence(id int, c *Counts) error {
	s, err := a.flows.sequence(id)
	if err != nil {
		return err
	}
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	if s.seen == nil {
		<-s.done // a sender ends after stop is closed
	}
	s.c.Close()
	<-s.done
	return a.Counts(id, c)
}
