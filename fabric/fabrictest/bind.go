package fabrictest

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
)

// Bind implements fabric.QP.
func (q *qp) Bind(b fabric.BindWR) (uint32, error) { return q.bind(&b, nil) }

// BindSend implements fabric.QP.
func (q *qp) BindSend(b fabric.BindWR, send uint64, f fabric.Flags) (uint32, error) {
	return q.bind(&b, &work{SendWR: fabric.SendWR{ID: send, Op: fabric.OpSendImm, Flags: f &^ fabric.More}})
}

// bind posts a bind, and then a SEND of the key, unless send is nil.
func (q *qp) bind(b *fabric.BindWR, send *work) (uint32, error) {
	const doing = "binding a memory window on"
	win, ok1 := b.Window.(*window)
	reg, ok2 := b.Region.(*region)
	switch {
	case !ok1 || !ok2:
		return 0, q.errorf(doing, fmt.Errorf("window or region are not of this fabric: %w", unix.EINVAL))
	case !b.Grants():
		return 0, q.errorf(doing, fmt.Errorf("no window grants the rights %#x: %w", b.Access, unix.EINVAL))
	}
	if q.net.adapter.Windows == NoWindowBind {
		return 0, q.errorf(doing, fmt.Errorf("not the opcode of a send request: %w", unix.EINVAL))
	}
	q.sq.Lock()
	defer q.sq.Unlock()
	if q.refuses() {
		return 0, q.errorf(doing, q.failedErr())
	}
	slots := uint64(1)
	if send != nil {
		slots++
	}
	if err := q.checkSlots(slots); err != nil {
		return 0, q.errorf(doing, err)
	}
	key, err := win.ask(q, reg, b.Addr, b.Length)
	if err != nil {
		return 0, q.errorf(doing, err)
	}
	q.submit(&work{
		SendWR: fabric.SendWR{ID: b.ID, Op: fabric.OpBind, RKey: key, Flags: b.Flags & fabric.Signaled},
		bind:   &binding{window: win, region: reg, key: key, addr: b.Addr, length: uint64(b.Length), access: b.Access},
	})
	if send != nil {
		send.Imm = key
		q.submit(send)
	}
	return key, nil
}

// Unbind implements fabric.QP.
func (q *qp) Unbind(w fabric.Window, id uint64, f fabric.Flags) error {
	const doing = "unbinding a memory window on"
	win, ok := w.(*window)
	if !ok {
		return q.errorf(doing, fmt.Errorf("the window is not of this fabric: %w", unix.EINVAL))
	}
	q.sq.Lock()
	defer q.sq.Unlock()
	if q.refuses() {
		return q.errorf(doing, q.failedErr())
	}
	if err := q.checkSlot(); err != nil {
		return q.errorf(doing, err)
	}
	key := win.RKey()
	if err := q.unask(key); err != nil {
		return q.errorf(doing, err)
	}
	q.submit(&work{SendWR: fabric.SendWR{ID: id, Op: fabric.OpLocalInv, Flags: f &^ fabric.Inline, RKey: key}})
	return nil
}
