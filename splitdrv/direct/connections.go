package direct

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/splitnic/splitnic/splitdrv/direct/internal/paths"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// Connections has the direct connections of a host. Any goroutine may use it.
type Connections struct {
	shared

	// Guarded by mu.
	stopping string // why all connections end, and no others begin; "" if they do not
	links    map[session.DirectID]*link
	left     Counts // sum of the links that have ended
}

// New divides the netdevice's queues, if direct connections are enabled.
func New(cfg Config) (*Connections, error) {
	cfg.complete()
	d := &Connections{shared: shared{cfg: &cfg}, links: make(map[session.DirectID]*link)}
	if !cfg.On {
		return d, nil
	}
	var err error
	d.split, err = paths.New(cfg.Ports, paths.Config{Log: cfg.Log})
	return d, err
}

// Ports returns the ports for a session with an I/O unit that uses the first queues of the
// netdevice.
func (d *Connections) Ports(queues int) []messaging.Port {
	if d.split == nil {
		return d.cfg.Ports[:queues]
	}
	d.split.SetQueues(queues)
	return d.split.Uplink()[:queues]
}

// Use sets the session whose I/O unit directs the connections, or none if a is nil. Existing
// connections continue for a while.
func (d *Connections) Use(a *Session) {
	d.mu.Lock()
	d.session, d.settled = a, false
	d.mu.Unlock()
	d.tellAll(event{kind: eventOther})
}

// Settle records that the I/O unit of a session has the settings of the netdevice. From then
// on it can decide whether it permits existing connections.
func (d *Connections) Settle(conn *messaging.Conn) {
	d.mu.Lock()
	news := d.session != nil && d.session.Conn == conn && !d.settled
	d.settled = d.settled || news
	d.mu.Unlock()
	if news {
		d.tellAll(event{kind: eventSettled})
	}
}

func (d *Connections) tellAll(e event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.links {
		l.tell(e)
	}
}

// Stop ends all direct connections in good order, and waits until they have ended.
func (d *Connections) Stop(reason string) {
	d.mu.Lock()
	d.stopping = reason
	d.mu.Unlock()
	d.tellAll(event{kind: eventLeave, reason: reason})
	d.running.Wait()
}

// Close releases the netdevice's queues.
func (d *Connections) Close() error {
	if d.split == nil {
		return nil
	}
	return d.split.Close()
}

// Heard handles a message of the I/O unit of a (session.Conn.HandleDirect).
func (d *Connections) Heard(a *Session, m *session.Direct) {
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
func (d *Connections) offered(a *Session, m *session.Direct) {
	d.mu.Lock()
	var oldest *link
	reason := ""
	switch {
	case d.stopping != "":
		reason = d.stopping
	case d.session != a:
		reason = "the session is not in use"
	case m.Cipher == "" && (d.cfg.Encrypt || a.Encrypted):
		reason = "this host needs encryption"
	case m.Cipher != "" && !slices.Contains(d.cfg.Ciphers, m.Cipher):
		reason = fmt.Sprintf("this host does not encrypt with %s", m.Cipher)
	case d.links[m.ID] != nil:
		reason = "there is such a connection already"
	case len(d.links) >= 2*d.cfg.Peers: // half of them are ending
		reason = "too many direct connections are being ended"
	case d.alive() >= d.cfg.Peers:
		oldest = d.leastUsed()
	}
	if reason == "" {
		l := newLink(&d.shared, a, m)
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
		d.cfg.Background(func() {
			err := errors.Join(a.Send(&session.Direct{Step: session.DirectEnd, ID: m.ID, Reason: reason}),
				a.Send(&session.Direct{Step: session.DirectEnded, ID: m.ID}))
			if err != nil {
				d.cfg.Log.Debug("direct connection declined", "peer", m.Peer.Name, "error", err)
			}
		})
	}
}

// alive returns the number of connections that are not ending. The caller holds mu.
func (d *Connections) alive() (n int) {
	for _, l := range d.links {
		if l.shown.Load().State != Ending {
			n++
		}
	}
	return n
}

// leastUsed returns the connection that has been unused for longest. The caller holds mu.
func (d *Connections) leastUsed() (oldest *link) {
	for _, l := range d.links {
		if l.shown.Load().State == Ending {
			continue
		}
		if oldest == nil || l.used.Load() < oldest.used.Load() {
			oldest = l
		}
	}
	return oldest
}

func (d *Connections) forget(l *link) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.links, l.id)
	d.left = d.left.plus(l.counts())
	d.left.Ended++
}

// Status returns a snapshot.
func (d *Connections) Status() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := Status{On: d.split != nil, Total: d.left, Connections: []ConnectionStatus{}}
	s.Granted = d.session != nil && d.session.Directs
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
	slices.SortFunc(s.Connections, func(x, y ConnectionStatus) int {
		return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.ID, y.ID))
	})
	if d.split != nil {
		c := d.split.Counts()
		s.UplinkFull, s.Markers = c.UplinkFull, c.Markers
	}
	return s
}
