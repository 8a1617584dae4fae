package attacks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// Layout of the memory of Queues: receives of the control channel, then the lent elements, then the
// send buffer.
const (
	controlReceives = 128
	dataReceives    = 64
	lentElements    = 4
	lentElement     = 2048
	scratchSize     = 256 << 10
	lentAt          = controlReceives * protocol.MaxControlSize
	scratchAt       = lentAt + lentElements*lentElement
)

// Types of completions, in bits 63–32 of their IDs.
const (
	forControl = iota + 1
	forData
	forSend
)

// Queues is a control channel and a data channel of bare queue pairs, in a separate protection
// domain. It may be used by one goroutine.
type Queues struct {
	Control, Data fabric.QP

	mem     []byte
	dom     fabric.Domain
	region  fabric.Region
	cq      fabric.CQ
	scratch int // offset in the send buffer for the next message

	inbox   [][]byte // control messages that have arrived
	arrived int      // number of transfers that have arrived on the data channel
	posted  int      // number of posted sends
	sent    int      // number of completed sends, successful or not
	refused *fabric.WCError
	surly   bool // no answers to requests
}

// NewQueues creates the queue pairs and posts their receives.
func NewQueues(dev fabric.Device) (q *Queues, err error) {
	q = &Queues{}
	defer func() {
		if err != nil {
			err = errors.Join(err, q.Close())
		}
	}()
	q.mem, err = unix.Mmap(-1, 0, scratchAt+scratchSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return q, err
	}
	if q.dom, err = dev.NewDomain(); err != nil {
		return q, err
	}
	if q.region, err = q.dom.Register(q.mem, fabric.LocalWrite|fabric.RemoteWrite); err != nil {
		return q, err
	}
	if q.cq, err = q.dom.NewCQ(4096, 0); err != nil {
		return q, err
	}
	for _, qp := range []*fabric.QP{&q.Control, &q.Data} {
		*qp, err = q.dom.NewQP(fabric.QPConfig{Transport: fabric.RC, SendCQ: q.cq, RecvCQ: q.cq, MaxSend: 1024,
			MaxRecv: controlReceives})
		if err != nil {
			return q, err
		}
	}
	for i := range controlReceives {
		if err = q.receiveControl(i); err != nil {
			return q, err
		}
	}
	for range dataReceives {
		if err = q.receiveData(); err != nil {
			return q, err
		}
	}
	return q, nil
}

// Close destroys all objects.
func (q *Queues) Close() error {
	var errs []error
	for _, qp := range []fabric.QP{q.Control, q.Data} {
		if qp != nil {
			errs = append(errs, qp.Fail()) // so that no timer fires for a destroyed queue pair
		}
	}
	if q.dom != nil {
		errs = append(errs, q.dom.Close())
		q.dom = nil
	}
	if q.mem != nil {
		errs = append(errs, unix.Munmap(q.mem))
		q.mem = nil
	}
	q.Control, q.Data = nil, nil
	return errors.Join(errs...)
}

func (q *Queues) receiveControl(i int) error {
	_, err := q.Control.PostRecv([]fabric.RecvWR{{
		ID: forControl<<32 | uint64(i), Addr: q.region.Addr() + uint64(i*protocol.MaxControlSize),
		Len: protocol.MaxControlSize, LKey: q.region.LKey(),
	}})
	return err
}

func (q *Queues) receiveData() error {
	_, err := q.Data.PostRecv([]fabric.RecvWR{{ID: forData << 32}})
	return err
}

// Post posts a work request with data, which it copies.
func (q *Queues) Post(qp fabric.QP, wr fabric.SendWR, data []byte) error {
	if q.scratch+len(data) > scratchSize {
		q.scratch = 0 // the data there was sent long ago
	}
	at := scratchAt + q.scratch
	q.scratch += copy(q.mem[at:], data)
	wr.ID, wr.Addr, wr.Len, wr.LKey = forSend<<32, q.region.Addr()+uint64(at), uint32(len(data)), q.region.LKey()
	wr.Flags |= fabric.Signaled | fabric.Solicited
	if _, err := qp.PostSend([]fabric.SendWR{wr}); err != nil {
		return err
	}
	q.posted++
	return nil
}

// Send sends a control message.
func (q *Queues) Send(msg []byte) error {
	return q.Post(q.Control, fabric.SendWR{Op: fabric.OpSend}, msg)
}

// Completed waits until everything that was posted has completed, and returns
// the first failure since the last time as a *fabric.WCError.
func (q *Queues) Completed(ctx context.Context) error {
	if err := q.until(ctx, func() bool { return q.sent == q.posted }); err != nil {
		return err
	}
	if failed := q.refused; failed != nil {
		q.refused = nil
		return failed
	}
	return nil
}

// messageTime bounds the wait for a message. The I/O unit may have ended the session, which the
// queue pairs do not report.
const messageTime = time.Minute

// Message waits for the next control message with this function, and drops those before it.
func (q *Queues) Message(ctx context.Context, f protocol.Function) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, messageTime)
	defer cancel()
	for {
		if err := q.until(ctx, func() bool { return len(q.inbox) > 0 }); err != nil {
			return nil, fmt.Errorf("wait for %v: %w", f, err)
		}
		msg := q.inbox[0]
		q.inbox = q.inbox[1:]
		if h, err := protocol.DecodeHeader(msg); err == nil && h.Function == f {
			return msg, nil
		}
	}
}

// until handles completions until cond holds or ctx is done.
func (q *Queues) until(ctx context.Context, cond func() bool) error {
	for armed := false; !cond(); {
		n, err := q.poll()
		switch {
		case err != nil:
			return err
		case n > 0:
			armed = false
		case !armed:
			if err := q.cq.Arm(false); err != nil {
				return err
			}
			armed = true
		default:
			if err := q.cq.Wait(ctx); err != nil {
				return fmt.Errorf("%w: %w", err, context.Cause(ctx))
			}
			armed = false
		}
	}
	return nil
}

// poll handles the available completions and returns their number.
func (q *Queues) poll() (int, error) {
	var cs [16]fabric.Completion
	n, err := q.cq.Poll(cs[:])
	for i := range cs[:n] {
		if err == nil {
			err = q.handle(&cs[i])
		}
	}
	return n, err
}

// handle handles one completion.
func (q *Queues) handle(c *fabric.Completion) error {
	kind, i := c.ID>>32, int(uint32(c.ID))
	if kind == forSend {
		q.sent++
		if c.Status != fabric.StatusSuccess && q.refused == nil {
			q.refused = &fabric.WCError{Status: c.Status, VendorErr: c.VendorErr, QPN: c.QPN}
		}
		return nil
	}
	if c.Status != fabric.StatusSuccess {
		return nil // the queue pair has failed, which its sends report
	}
	if kind == forData {
		q.arrived++
		return q.receiveData()
	}
	msg := append([]byte(nil), q.mem[i*protocol.MaxControlSize:][:c.Len]...)
	if err := q.receiveControl(i); err != nil {
		return err
	}
	if r, err := protocol.DecodeCfgUtilRequest(msg); err == nil && !q.surly {
		// Any answer keeps the session alive.
		return q.Send(protocol.AppendCfgUtilReply(nil, protocol.CfgUtilReply{
			TransactionContext: r.TransactionContext, Type: r.Type, Status: protocol.CfgUnsupported,
		}))
	}
	q.inbox = append(q.inbox, msg)
	return nil
}
