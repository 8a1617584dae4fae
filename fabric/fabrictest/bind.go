package fabrictest

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
)

// Bind implements fabric.QP.
func (q *qp) Bind(
	w fabric.Window, r fabric.Region, addr uint64, length int, id uint64, f fabric.Flags,
) (uint32, error) {
	return q.bind(w, r, addr, length, &work{SendWR: fabric.SendWR{ID: id, Flags: f}}, nil)
}

// BindSend implements fabric.QP.
func (q *qp) BindSend(
	w fabric.Window, r fabric.Region, addr uint64, length int, bind, send uint64, f fabric.Flags,
) (uint32, error) {
	return q.bind(w, r, addr, length, &work{SendWR: fabric.SendWR{ID: bind}},
		&work{SendWR: fabric.SendWR{ID: send, Op: fabric.OpSendImm, Flags: f &^ fabric.More}})
}

// bind posts a bind, and then a SEND of the key, unless send is nil.
func (q *qp) bind(
	w fabric.Window, r fabric.Region, addr uint64, length int, bind, send *work,
) (uint32, error) {
	const doing = "binding a memory window on"
	win, ok1 := w.(*window)
	reg, ok2 := r.(*region)
	if !ok1 || !ok2 {
		return 0, q.errorf(doing, fmt.Errorf("window or region are not of this fabric: %w", unix.EINVAL))
	}
	q.sq.Lock()
	defer q.sq.Unlock()
	slots := uint64(1)
	if send != nil {
		slots++
	}
	if err := q.checkSlots(slots); err != nil {
		return 0, q.errorf(doing, err)
	}
	key, err := win.ask(q, reg, addr, length)
	if err != nil {
		return 0, q.errorf(doing, err)
	}
	bind.Op, bind.RKey, bind.Flags = fabric.OpBind, key, bind.Flags&^fabric.Inline
	bind.bind = &binding{window: win, region: reg, key: key, addr: addr, length: uint64(length)}
	q.submit(bind)
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
