package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/verbs"
)

// Identifiers of work requests.
const (
	idRecv = 1
	idSend = 2
)

// session is one end of the connection.
type session struct {
	o   options
	dev *verbs.Context
	cq  fabric.CQ
	qp  fabric.QP
	mem []byte
	mr  fabric.Region

	recvs []fabric.RecvWR
}

func newSession(o options) (_ *session, err error) {
	if o.device == "" {
		devs, err := verbs.Devices()
		if err != nil {
			return nil, err
		}
		if len(devs) == 0 {
			return nil, errors.New("there is no RDMA device; for Soft-RoCE: rdma link add rxe0 type rxe netdev eth0")
		}
		o.device = devs[0].Name
	}
	s := &session{o: o}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	s.dev, err = verbs.Open(o.device, verbs.WithPort(o.port), verbs.WithGIDIndex(o.gidIndex))
	if err != nil {
		return nil, err
	}
	dom, err := s.dev.NewDomain()
	if err != nil {
		return nil, err
	}
	// Memory that a device writes has to be outside the Go heap.
	s.mem, err = unix.Mmap(-1, 0, o.size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes: %w", o.size, err)
	}
	if s.mr, err = dom.Register(s.mem, fabric.LocalWrite); err != nil {
		return nil, err
	}
	if s.cq, err = dom.NewCQ(o.rxDepth+1, 0); err != nil {
		return nil, err
	}
	s.qp, err = dom.NewQP(fabric.QPConfig{
		Transport: o.transport, SendCQ: s.cq, RecvCQ: s.cq, MaxSend: 1, MaxRecv: o.rxDepth,
	})
	if err != nil {
		return nil, err
	}
	s.recvs = make([]fabric.RecvWR, o.rxDepth)
	for i := range s.recvs {
		s.recvs[i] = fabric.RecvWR{ID: idRecv, Addr: s.mr.Addr(), Len: uint32(o.size), LKey: s.mr.LKey()}
	}
	// The peer may send as soon as it knows the address.
	_, err = s.qp.PostRecv(s.recvs)
	return s, err
}

// close closes the device with all of its objects, and then frees the memory that the device could
// have written.
func (s *session) close() {
	if s.dev != nil {
		if err := s.dev.Close(); err != nil {
			fmt.Println("pingpong:", err)
			return
		}
	}
	if s.mem != nil {
		_ = unix.Munmap(s.mem) // ends with the process anyway
		s.mem = nil
	}
}

func (s *session) connect(remote fabric.Address) error {
	// The text protocol does not carry the MTU: both sides have to be told.
	remote.MTU = s.o.mtu
	return s.qp.Connect(remote, fabric.Timing{})
}

// play exchanges the messages. The client sends first; each side sends its next
// message when it has received one and its last one has completed.
func (s *session) play(ctx context.Context, client bool) (time.Duration, error) {
	start := time.Now()
	var (
		out              [8]fabric.Completion
		sent, received   int
		sending, pending bool // pending: a received message is to be answered
		posted           = len(s.recvs)
	)
	pending = client
	for sent < s.o.iters || received < s.o.iters {
		if pending && !sending && sent < s.o.iters {
			if err := s.send(); err != nil {
				return 0, err
			}
			sending, pending = true, false
		}
		n, err := s.next(ctx, out[:])
		if err != nil {
			return 0, err
		}
		for i := range out[:n] {
			if err := out[i].Err(); err != nil {
				return 0, err
			}
			if out[i].ID == idSend {
				sent++
				sending = false
				continue
			}
			received++
			posted--
			pending = true
		}
		if posted <= 1 {
			k, err := s.qp.PostRecv(s.recvs[posted:])
			if err != nil {
				return 0, err
			}
			posted += k
		}
	}
	return time.Since(start), nil
}

func (s *session) send() error {
	_, err := s.qp.PostSend([]fabric.SendWR{{
		ID: idSend, Op: fabric.OpSend, Flags: fabric.Signaled, Addr: s.mr.Addr(), Len: uint32(s.o.size), LKey: s.mr.LKey(),
	}})
	return err
}

// next waits for completions, by polling, or asleep with -e. It returns at least one.
func (s *session) next(ctx context.Context, out []fabric.Completion) (int, error) {
	for {
		if n, err := s.cq.Poll(out); n > 0 || err != nil {
			return n, err
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if !s.o.events {
			continue
		}
		if err := s.cq.Arm(false); err != nil {
			return 0, err
		}
		// A completion before the queue was armed causes no event.
		if n, err := s.cq.Poll(out); n > 0 || err != nil {
			return n, err
		}
		if err := s.cq.Wait(ctx); err != nil {
			return 0, err
		}
	}
}
