package hostiletest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// Types of completions, in bits 63–32 of their IDs.
const (
	forControl = iota + 1
	forData
	forSend
)

// QueuesConfig is the configuration of Queues.
type QueuesConfig struct {
	Device    fabric.Device
	Transport fabric.Transport // of the data channels
	Channels  int              // number of data channels
	// Receives is the number of receives of the control channel. With Once they are not posted again.
	Receives int
	Once     bool
	// DataReceives is the number of receives of each data channel, and DataSize the bytes of each.
	DataReceives, DataSize int
	Lent                   int // bytes that can be lent
	Scratch                int // bytes for what is sent
}

// Queues is a control channel and data channels of bare queue pairs, in a separate protection domain.
// Nothing of the protocol is kept, except that requests are answered, so that the session goes on. Only
// one goroutine may use it.
type Queues struct {
	Control fabric.QP
	Data    []fabric.QP
	// Mem has the receives of the control channel, those of the data channels, what can be lent, and
	// what is sent.
	Mem    []byte
	Region fabric.Region // Mem

	Surly  bool // requests are not answered
	Answer func(r protocol.CfgUtilRequest) protocol.CfgStatus

	Inbox   [][]byte         // control messages that have arrived
	Arrived int              // number of transfers that have arrived on data channels
	Posted  int              // number of posted sends
	Sent    int              // number of completed sends, successful or not
	Refused []fabric.WCError // the first failed send of each queue pair, since Completed

	cfg     QueuesConfig
	dom     fabric.Domain
	cq      fabric.CQ
	scratch int // offset in Mem for the next send, from where these begin
}

// NewQueues makes the queue pairs and posts their receives.
func NewQueues(cfg QueuesConfig) (q *Queues, err error) {
	q = &Queues{cfg: cfg}
	defer func() {
		if err != nil {
			err = errors.Join(err, q.Close())
		}
	}()
	q.Mem, err = unix.Mmap(-1, 0, q.LentAt()+cfg.Lent+cfg.Scratch, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return q, err
	}
	if q.dom, err = cfg.Device.NewDomain(); err != nil {
		return q, err
	}
	if q.Region, err = q.dom.Register(q.Mem, fabric.LocalWrite|fabric.RemoteWrite); err != nil {
		return q, err
	}
	if q.cq, err = q.dom.NewCQ(4096, 0); err != nil {
		return q, err
	}
	for ch := range 1 + cfg.Channels {
		c := fabric.QPConfig{Transport: fabric.RC, SendCQ: q.cq, RecvCQ: q.cq, MaxSend: 1024, MaxRecv: 128}
		if ch > 0 {
			c.Transport = cfg.Transport
		}
		qp, err := q.dom.NewQP(c)
		if err != nil {
			return q, err
		}
		if ch > 0 {
			q.Data = append(q.Data, qp)
		} else {
			q.Control = qp
		}
	}
	for i := range cfg.Receives {
		if err := q.receiveControl(i); err != nil {
			return q, err
		}
	}
	for i := range cfg.Channels * cfg.DataReceives {
		if err := q.receiveData(i); err != nil {
			return q, err
		}
	}
	return q, nil
}

// Close destroys all objects.
func (q *Queues) Close() error {
	var errs []error
	for _, qp := range append(slices.Clone(q.Data), q.Control) {
		if qp != nil {
			errs = append(errs, qp.Fail()) // so that no timer fires for a destroyed queue pair
		}
	}
	if q.dom != nil {
		errs = append(errs, q.dom.Close())
	}
	if q.Mem != nil {
		errs = append(errs, unix.Munmap(q.Mem))
	}
	q.Control, q.Data, q.dom, q.Mem = nil, nil, nil, nil
	return errors.Join(errs...)
}

// LentAt returns the offset in Mem of what can be lent.
func (q *Queues) LentAt() int {
	return q.cfg.Receives*protocol.MaxControlSize + q.cfg.Channels*q.cfg.DataReceives*q.cfg.DataSize
}

// At returns an address in Mem.
func (q *Queues) At(offset int) uint64 { return q.Region.Addr() + uint64(offset) }

func (q *Queues) receiveControl(i int) error {
	_, err := q.Control.PostRecv([]fabric.RecvWR{{
		ID: forControl<<32 | uint64(i), Addr: q.At(i * protocol.MaxControlSize), Len: protocol.MaxControlSize,
		LKey: q.Region.LKey(),
	}})
	return err
}

func (q *Queues) receiveData(i int) error {
	wr := fabric.RecvWR{ID: forData<<32 | uint64(i)}
	if size := q.cfg.DataSize; size > 0 {
		wr.Addr, wr.Len = q.At(q.cfg.Receives*protocol.MaxControlSize+i*size), uint32(size)
		wr.LKey = q.Region.LKey()
	}
	_, err := q.Data[i/q.cfg.DataReceives].PostRecv([]fabric.RecvWR{wr})
	return err
}

// Post posts a work request with data, which it copies.
func (q *Queues) Post(qp fabric.QP, wr fabric.SendWR, data []byte) error {
	if q.scratch+len(data) > q.cfg.Scratch {
		q.scratch = 0 // the data there was sent long ago
	}
	at := q.LentAt() + q.cfg.Lent + q.scratch
	q.scratch += copy(q.Mem[at:], data)
	wr.ID, wr.Addr, wr.Len, wr.LKey = forSend<<32, q.At(at), uint32(len(data)), q.Region.LKey()
	wr.Flags |= fabric.Signaled | fabric.Solicited
	if _, err := qp.PostSend([]fabric.SendWR{wr}); err != nil {
		return err
	}
	q.Posted++
	return nil
}

// Send sends a control message.
func (q *Queues) Send(msg []byte) error {
	return q.Post(q.Control, fabric.SendWR{Op: fabric.OpSend}, msg)
}

// Completed waits until everything that was posted has completed, and returns the first failure since
// the last time as a *fabric.WCError.
func (q *Queues) Completed(ctx context.Context) error {
	if err := q.Until(ctx, func() bool { return q.Sent == q.Posted }); err != nil {
		return err
	}
	if len(q.Refused) == 0 {
		return nil
	}
	first := q.Refused[0]
	q.Refused = nil
	return &first
}

// messageTime bounds the wait for a message. The session may have ended, which the queue pairs do not
// report.
const messageTime = time.Minute

// Message waits for the next control message with this function, and drops those before it.
func (q *Queues) Message(ctx context.Context, f protocol.Function) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, messageTime)
	defer cancel()
	for {
		if err := q.Until(ctx, func() bool { return len(q.Inbox) > 0 }); err != nil {
			return nil, fmt.Errorf("wait for %v: %w", f, err)
		}
		msg := q.Inbox[0]
		q.Inbox = q.Inbox[1:]
		if h, err := protocol.DecodeHeader(msg); err == nil && h.Function == f {
			return msg, nil
		}
	}
}

// Until handles completions until cond holds or ctx is done.
func (q *Queues) Until(ctx context.Context, cond func() bool) error {
	var cs [16]fabric.Completion
	for !cond() {
		n, err := fabric.Reap(ctx, q.cq, cs[:])
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if err := q.handleEach(cs[:n]); err != nil {
			return err
		}
	}
	return nil
}

// Poll handles up to 16 completions and returns their number.
func (q *Queues) Poll() (int, error) {
	var cs [16]fabric.Completion
	n, err := q.cq.Poll(cs[:])
	return n, errors.Join(err, q.handleEach(cs[:n]))
}

func (q *Queues) handleEach(cs []fabric.Completion) error {
	for i := range cs {
		if err := q.handle(&cs[i]); err != nil {
			return err
		}
	}
	return nil
}

func (q *Queues) handle(c *fabric.Completion) error {
	kind, i := c.ID>>32, int(uint32(c.ID))
	if kind == forSend {
		q.Sent++
		known := slices.ContainsFunc(q.Refused, func(e fabric.WCError) bool { return e.QPN == c.QPN })
		if c.Status != fabric.StatusSuccess && !known {
			q.Refused = append(q.Refused, fabric.WCError{Status: c.Status, VendorErr: c.VendorErr, QPN: c.QPN})
		}
		return nil
	}
	if c.Status != fabric.StatusSuccess {
		return nil // the queue pair has failed, which its sends report
	}
	if kind == forData {
		q.Arrived++
		return q.receiveData(i)
	}
	msg := append([]byte(nil), q.Mem[i*protocol.MaxControlSize:][:c.Len]...)
	if q.cfg.Once {
		q.Inbox = append(q.Inbox, msg)
		return nil
	}
	if err := q.receiveControl(i); err != nil {
		return err
	}
	r, err := protocol.DecodeCfgUtilRequest(msg)
	if err != nil || q.Surly {
		q.Inbox = append(q.Inbox, msg)
		return nil
	}
	reply := protocol.CfgUtilReply{TransactionContext: r.TransactionContext, Type: r.Type, Status: protocol.CfgUnsupported}
	if q.Answer != nil {
		reply.Status = q.Answer(r)
	}
	return q.Send(protocol.AppendCfgUtilReply(nil, reply)) // any answer keeps the session alive
}
