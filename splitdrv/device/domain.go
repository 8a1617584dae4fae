package device

import "github.com/splitnic/splitnic/fabric"

// Failing is a fabric.Domain that reports its failure.
type Failing interface {
	// OnFailure sets the function that is called, once, when an event says that an object of
	// the domain or the device has failed; at once if that was before. It must not wait.
	OnFailure(tell func(error))
	// OnPortDown sets the function that is called each time an event says that the port of the
	// device has gone down; at once if it is down. Who does not set it waits for the port. It
	// must not wait.
	OnPortDown(tell func(error))
	// Explain returns the reason for err, the error of a call: that the device is gone, if it
	// is, and else err.
	Explain(err error) error
}

func (m *domain) NewCQ(depth, vector int) (fabric.CQ, error) {
	cq, err := m.Domain.NewCQ(depth, vector)
	if n, ok := cq.(fabric.Numbered); ok && err == nil {
		m.mu.Lock()
		m.cqs[n.Handle()] = struct{}{}
		m.mu.Unlock()
	}
	return cq, err
}

func (m *domain) NewQP(cfg fabric.QPConfig) (fabric.QP, error) {
	qp, err := m.Domain.NewQP(cfg)
	if err == nil {
		m.mu.Lock()
		m.qps[qp.Num()] = struct{}{}
		m.mu.Unlock()
	}
	return qp, err
}

func (m *domain) OnFailure(tell func(error)) {
	m.mu.Lock()
	m.tell = tell
	err := m.err
	m.mu.Unlock()
	if err != nil {
		tell(err)
	}
}

func (m *domain) OnPortDown(tell func(error)) {
	m.mu.Lock()
	m.portDown = tell
	m.mu.Unlock()
	d := m.device
	d.mu.Lock()
	var down error
	for port := range d.record.down {
		if ev := (fabric.Event{Type: fabric.EventPortErr, Port: port}); m.of.uses(ev) {
			down = &EventError{Device: d.name, Event: ev}
		}
	}
	d.mu.Unlock()
	if down != nil {
		tell(down)
	}
}

// uses reports whether an event is about the port of the device's queue pairs.
func (o *opening) uses(ev fabric.Event) bool {
	p, ok := o.Device.(interface{ PortNumber() int })
	return !ok || p.PortNumber() == ev.Port
}

func (m *domain) lacksPort(err error) {
	m.mu.Lock()
	tell := m.portDown
	m.mu.Unlock()
	if tell != nil {
		tell(err)
	}
}

func (m *domain) fail(err error) {
	m.mu.Lock()
	tell := m.tell
	if m.err != nil {
		tell = nil
	} else {
		m.err = err
	}
	m.mu.Unlock()
	if tell != nil {
		tell(err)
	}
}

// concerns reports whether an event is about an object of the domain.
func (m *domain) concerns(ev fabric.Event) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	there := false
	switch ev.Type {
	case fabric.EventCQErr:
		_, there = m.cqs[ev.CQ]
	case fabric.EventQPFatal, fabric.EventQPReqErr, fabric.EventQPAccessErr:
		_, there = m.qps[ev.QPN]
	default:
	}
	return there
}
