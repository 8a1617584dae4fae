package fabrictest

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// Close implements fabric.Device.
func (d *device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	close(d.done)
	d.mu.Unlock()
	d.gone.Store(false) // closing the device closes everything
	var errs []error
	for _, dom := range d.openDomains() {
		errs = append(errs, dom.Close())
	}
	d.node.mu.Lock()
	delete(d.node.devs, d)
	d.node.mu.Unlock()
	return errors.Join(errs...)
}

// kill closes the queue pairs first, so that peers lose all of them at the same time. It ignores
// the errors of an orderly Close.
func (d *device) kill() {
	for _, dom := range d.openDomains() {
		for _, q := range open[*qp](dom) {
			_ = q.Close()
		}
	}
	_ = d.Close()
}

func (d *device) openDomains() []*domain {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.domains))
}

// Close implements fabric.Domain.
func (d *domain) Close() error {
	if err := d.dev.refuse("closing a protection domain"); err != nil {
		return err
	}
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	errs := slices.Concat(closeAll[*qp](d), closeAll[*cq](d), closeAll[*window](d), closeAll[*region](d))
	d.dev.mu.Lock()
	delete(d.dev.domains, d)
	d.dev.mu.Unlock()
	return errors.Join(errs...)
}

// open returns the open objects of a kind.
func open[K io.Closer](d *domain) (all []K) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for o := range d.objects {
		if k, ok := o.(K); ok {
			all = append(all, k)
		}
	}
	return all
}

func closeAll[K io.Closer](d *domain) (errs []error) {
	for _, o := range open[K](d) {
		errs = append(errs, o.Close())
	}
	return errs
}

// forget records that an object is closed.
func (d *domain) forget(o io.Closer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.objects, o)
}

// qpsOn returns the queue pairs that use c.
func (d *domain) qpsOn(c *cq) []*qp {
	return slices.DeleteFunc(open[*qp](d), func(q *qp) bool { return q.sendCQ != c && q.recvCQ != c })
}

// Close implements fabric.CQ. It closes the queue pairs that use c.
func (c *cq) Close() error {
	if err := c.dom.dev.refuse("closing a completion queue"); err != nil {
		return err
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.fd.close()
	close(c.done)
	c.mu.Unlock()
	for _, q := range c.dom.qpsOn(c) {
		_ = q.Close() // never fails
	}
	c.bg.Wait()
	c.dom.forget(c)
	return nil
}

// Close implements fabric.QP. It fails only on a removed device.
func (q *qp) Close() error {
	if err := q.dom.dev.refuse("closing a queue pair"); err != nil {
		return err
	}
	q.halt()
	q.dom.forget(q)
	return nil
}

// halt ends everything that q does, and forgets its completions.
func (q *qp) halt() {
	q.resp.Lock()
	q.rq.Lock()
	if q.state.Load() == stateClosed {
		q.rq.Unlock()
		q.resp.Unlock()
		return
	}
	q.state.Store(stateClosed)
	q.wakeSender()
	q.rq.Unlock()
	q.resp.Unlock()

	q.sq.Lock()   // waits for a goroutine that has not seen the new state
	q.sq.Unlock() //nolint:staticcheck // only the wait is wanted
	q.kick()
	q.pumps.Wait()

	q.sendCQ.purge(q)
	if q.recvCQ != q.sendCQ {
		q.recvCQ.purge(q)
	}
	q.dropWindows()
	q.node.mu.Lock()
	c := q.counters()
	q.node.past.add(&c)
	q.node.mu.Unlock()
	q.net.remove(q)
}

// dropWindows unbinds the windows that are bound to q.
func (q *qp) dropWindows() {
	windows := open[*window](q.dom)
	q.net.keys.Lock()
	defer q.net.keys.Unlock()
	for _, w := range windows {
		if w.qp == q {
			w.detach()
		}
		if w.askedQP == q {
			w.forget()
		}
	}
}

// Close implements fabric.Region.
func (r *region) Close() error {
	if err := r.dom.dev.refuse("deregistering memory"); err != nil {
		return err
	}
	d := r.dom
	n := d.dev.net
	n.keys.Lock()
	if r.closed {
		n.keys.Unlock()
		return nil
	}
	if bound := max(r.asked, r.bound); bound != 0 {
		n.keys.Unlock()
		return fmt.Errorf("deregistering %d bytes on %s: %d memory windows are bound to the region; unbind or close them first: %w",
			len(r.mem), d.dev.node.name, bound, unix.EBUSY)
	}
	r.closed = true
	d.dev.table.give(r.rkey)
	n.keys.Unlock()
	d.forget(r)
	return nil
}

// Close implements fabric.Window. A bound window may be closed.
func (w *window) Close() error {
	if err := w.dom.dev.refuse("closing a memory window"); err != nil {
		return err
	}
	d := w.dom
	d.dev.net.keys.Lock()
	if w.closed {
		d.dev.net.keys.Unlock()
		return nil
	}
	w.closed = true
	w.forget()
	w.detach()
	d.dev.table.give(w.rkey)
	d.dev.net.keys.Unlock()
	d.forget(w)
	return nil
}
