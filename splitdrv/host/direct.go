package host

import (
	"cmp"
	"errors"
	"slices"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/direct/paths"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// direct has the direct connections of a host. Any goroutine may use it.
type direct struct {
	directCommon

	// Guarded by mu.
	stopping bool
	links    map[session.DirectID]*link
	left     DirectCounts // sum of the links that have ended
}

// newDirect divides the netdevice's queues, if direct connections are enabled.
func newDirect(cfg *Config, r *retired) (*direct, error) {
	d := &direct{directCommon: directCommon{cfg: cfg, retired: r}, links: make(map[session.DirectID]*link)}
	if !cfg.Direct.On {
		return d, nil
	}
	var err error
	d.split, err = paths.New(cfg.Netdev.Ports(), paths.Config{Log: cfg.Log})
	return d, err
}

// ports returns the ports for a session with an I/O unit that uses the first queues of the
// netdevice.
func (d *direct) ports(queues int) []messaging.Port {
	if d.split == nil {
		return d.cfg.Netdev.Ports()[:queues]
	}
	d.split.SetQueues(queues)
	return d.split.Uplink()[:queues]
}

// use sets the session whose I/O unit directs the connections, or none if a is nil. Existing
// connections continue for a while.
func (d *direct) use(a *attachment) {
	d.mu.Lock()
	d.session, d.settled = a, false
	d.mu.Unlock()
	d.tellAll(event{kind: eventOther})
}

// settle records that the I/O unit of a session has the settings of the netdevice. From then
// on it can decide whether it permits existing connections.
func (d *direct) settle(conn *messaging.Conn) {
	d.mu.Lock()
	news := d.session != nil && d.session.conn == conn && !d.settled
	d.settled = d.settled || news
	d.mu.Unlock()
	if news {
		d.tellAll(event{kind: eventSettled})
	}
}

func (d *direct) tellAll(e event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.links {
		l.tell(e)
	}
}

// stop ends all direct connections in good order, and waits until they have ended.
func (d *direct) stop(reason string) {
	d.mu.Lock()
	d.stopping = true
	d.mu.Unlock()
	d.tellAll(event{kind: eventLeave, reason: reason})
	d.running.Wait()
}

// close releases the netdevice's queues.
func (d *direct) close() error {
	if d.split == nil {
		return nil
	}
	return d.split.Close()
}

// heard handles a message of the I/O unit of a (session.Conn.HandleDirect).
func (d *direct) heard(a *attachment, m *session.Direct) {
	if m.Step == session.DirectOffer {
		d.offered(a, m)
		return
	}
	d.mu.Lock()
	l := d.links[m.ID]
	if d.session != a {
		l = nil // another I/O unit directs the connections now
	}
	d.mu.Unlock()
	if l != nil {
		l.tell(event{kind: eventMessage, message: m})
	}
}

// offered opens or declines a connection that the I/O unit of a offers.
func (d *direct) offered(a *attachment, m *session.Direct) {
	d.mu.Lock()
	var oldest *link
	reason := ""
	switch {
	case d.stopping:
		reason = errStopping.Error()
	case d.session != a:
		reason = "the session is not in use"
	case d.links[m.ID] != nil:
		reason = "there is such a connection already"
	case len(d.links) >= 2*d.cfg.Direct.Peers: // half of them are ending
		reason = "too many direct connections are being ended"
	case d.alive() >= d.cfg.Direct.Peers:
		oldest = d.leastUsed()
	}
	if reason == "" {
		l := newLink(&d.directCommon, a, m)
		d.links[m.ID] = l
		d.running.Go(func() {
			l.run()
			d.forget(l)
		})
	}
	d.mu.Unlock()
	if oldest != nil {
		oldest.tell(event{kind: eventLeave, reason: "it was not used for longest"})
	}
	if reason != "" {
		// In the background, because the reader of the connection must not wait for the peer.
		d.retired.add(func() {
			err := errors.Join(a.send(&session.Direct{Step: session.DirectEnd, ID: m.ID, Reason: reason}),
				a.send(&session.Direct{Step: session.DirectEnded, ID: m.ID}))
			if err != nil {
				d.cfg.Log.Debug("direct connection declined", "peer", m.Peer.Name, "error", err)
			}
		})
	}
}

// alive returns the number of connections that are not ending. The caller holds mu.
func (d *direct) alive() (n int) {
	for _, l := range d.links {
		if l.shown.Load().State != DirectEnding {
			n++
		}
	}
	return n
}

// leastUsed returns the connection that has been unused for longest. The caller holds mu.
func (d *direct) leastUsed() (oldest *link) {
	for _, l := range d.links {
		if l.shown.Load().State == DirectEnding {
			continue
		}
		if oldest == nil || l.used.Load() < oldest.used.Load() {
			oldest = l
		}
	}
	return oldest
}

// forget removes a link that has ended.
func (d *direct) forget(l *link) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.links, l.id)
	d.left = d.left.plus(l.counts())
	d.left.Ended++
}

// status returns a snapshot.
func (d *direct) status() DirectsStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := DirectsStatus{On: d.split != nil, Total: d.left, Connections: []DirectStatus{}}
	s.Granted = d.session != nil && d.session.welcome.Grants(protocol.FeatureDirect)
	for _, l := range d.links {
		one := *l.shown.Load()
		one.Counts = l.counts()
		if l.stats != nil {
			stats := l.stats.Stats()
			one.Traffic = &stats
		}
		s.Total = s.Total.plus(one.Counts)
		s.Connections = append(s.Connections, one)
	}
	slices.SortFunc(s.Connections, func(a, b DirectStatus) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	if d.split != nil {
		c := d.split.Counts()
		s.UplinkFull, s.Markers = c.UplinkFull, c.Markers
	}
	return s
}
