package host

import (
	"cmp"
	"errors"
	"slices"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/paths"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// direct are the direct connections of a host. It may be used by any goroutine.
type direct struct {
	directCommon

	// Guarded by mu.
	stopping bool
	links    map[session.DirectID]*link
	left     DirectCounts // of links that are gone
}

// newDirect divides the netdevice's queues, if there are to be direct connections.
func newDirect(cfg *Config, r *retired) (*direct, error) {
	d := &direct{directCommon: directCommon{cfg: cfg, retired: r}, links: make(map[session.DirectID]*link)}
	if !cfg.Direct.On {
		return d, nil
	}
	var err error
	d.split, err = paths.New(cfg.Netdev.Ports(), paths.Config{Log: cfg.Log})
	return d, err
}

// ports are those that a session with an I/O unit gets for the netdevice's first
// queues.
func (d *direct) ports(queues int) []messaging.Port {
	if d.split == nil {
		return d.cfg.Netdev.Ports()[:queues]
	}
	d.split.SetQueues(queues)
	return d.split.Uplink()[:queues]
}

// use has messages go over a session from now on, or none if it is nil. Connections from
// before go on for a while.
func (d *direct) use(a *attachment) {
	d.mu.Lock()
	d.session, d.settled = a, false
	d.mu.Unlock()
	d.tellAll(event{kind: eventOther})
}

// settle says that the I/O unit of a session knows what the netdevice has been set to.
// Now it can tell whether it permits connections from before.
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

// stop ends all direct connections in good order, and waits for that.
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

// heard is session.Conn.HandleDirect: it takes a message of the I/O unit of a.
func (d *direct) heard(a *attachment, m *session.Direct) {
	if m.Step == session.DirectOffer {
		d.offered(a, m)
		return
	}
	d.mu.Lock()
	l := d.links[m.ID]
	if d.session != a {
		l = nil // what it says of a link is another I/O unit's to say by now
	}
	d.mu.Unlock()
	if l != nil {
		l.tell(event{kind: eventMessage, message: m})
	}
}

// offered begins a connection that the I/O unit of a offers, or declines it.
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
	case len(d.links) >= 2*d.cfg.Direct.Peers: // as many end as there can be
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
		// Beside the reader of the connection, which must not wait for the peer.
		d.retired.add(func() {
			err := errors.Join(a.send(&session.Direct{Step: session.DirectEnd, ID: m.ID, Reason: reason}),
				a.send(&session.Direct{Step: session.DirectEnded, ID: m.ID}))
			if err != nil {
				d.cfg.Log.Debug("direct connection declined", "peer", m.Peer.Name, "error", err)
			}
		})
	}
}

// alive is how many connections are not being ended. The caller holds mu.
func (d *direct) alive() (n int) {
	for _, l := range d.links {
		if l.shown.Load().State != DirectEnding {
			n++
		}
	}
	return n
}

// leastUsed is the connection that was not used for longest. The caller holds mu.
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

// forget takes out a link that has ended.
func (d *direct) forget(l *link) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.links, l.id)
	d.left = d.left.plus(l.counts())
	d.left.Ended++
}

// status is a snapshot.
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
