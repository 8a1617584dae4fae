package direct

import (
	"encoding/hex"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// newTestDirect returns the direct connections of a host that may have peers of them.
func newTestDirect(peers int) *Connections {
	security, err := session.Insecure()
	if err != nil {
		panic(err)
	}
	cfg := &Config{
		Log: slog.New(slog.DiscardHandler), Settings: Settings{Peers: peers}, Security: security,
		Background: func(do func()) { do() },
	}
	cfg.complete()
	return &Connections{shared: shared{cfg: cfg}, links: make(map[session.DirectID]*link)}
}

// testSession is a session of this host.
type testSession struct {
	Session
	sent []*session.Direct
}

func newTestSession() *testSession {
	a := new(testSession)
	a.Session = Session{Directs: true, Platform: 7, StillTrusted: new(testUnit).StillTrusted}
	a.Send = func(m *session.Direct) error {
		a.sent = append(a.sent, m)
		return nil
	}
	return a
}

// newTestLink adds a link with this state and time of last use.
func (d *Connections) newTestLink(id session.DirectID, s State, used int64) *link {
	l := &link{d: &d.shared, id: id, offer: &session.Direct{Peer: &session.DirectPeer{}},
		inbox: inbox{events: make(chan event, 1), flooded: newLatch()}, author: &newTestSession().Session, full: newLatch()}
	l.heard.probes, l.heard.markers, l.heard.pause = newLatch(), newLatch(), newLatch()
	l.show(s)
	l.used.Store(used)
	d.links[id] = l
	return l
}

// testUnit is the I/O unit of a session.
type testUnit struct {
	mu    sync.Mutex
	until time.Time
	err   error
	asked int
}

func (a *testUnit) StillTrusted() (time.Time, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	return a.until, a.err
}

// becomes changes the trust in the I/O unit.
func (a *testUnit) becomes(until time.Time, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until, a.err = until, err
}

// TestNonces compares the nonces of markers and probes with those in the protocol's document. It
// expects another secret to give other nonces.
func TestNonces(t *testing.T) {
	n := nonces(&session.DirectSecret{}, 7)
	for name, got := range map[string]protocol.MarkerNonce{
		"bc46f32cf35a382021eda044da843f25": n.Marker,
		"b60771ec611d9285c20c480ba4c20321": n.Probe,
	} {
		if h := hex.EncodeToString(got[:]); h != name {
			t.Errorf("%s", h)
		}
	}
	if o := nonces(&session.DirectSecret{1}, 7); o.Marker == n.Marker || o.Probe == n.Probe {
		t.Error("another secret makes the same nonces")
	}
}

// TestOffersDeclined has the I/O unit offer connections that this host does not accept, and expects
// no new link.
func TestOffersDeclined(t *testing.T) {
	a := newTestSession()
	var offer session.Direct
	for name, prepare := range map[string]func(*Connections){
		"while the host stops":                     func(d *Connections) { d.stopping = "over" },
		"in the clear beside an encrypted session": func(*Connections) { a.Encrypted = true },
		"in the clear, and encryption is required": func(d *Connections) { d.cfg.Encrypt = true },
		"with a cipher that this host does not use": func(d *Connections) {
			d.cfg.Ciphers, offer.Cipher = []seal.Cipher{seal.AES256GCM}, seal.AES128GCM
		},
		"in another session":    func(d *Connections) { d.session = new(Session) },
		"what there is already": func(d *Connections) { d.newTestLink(7, Established, 1) },
		"while as many end": func(d *Connections) {
			d.newTestLink(1, Ending, 1)
			d.newTestLink(2, Ending, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestDirect(1)
			d.session = &a.Session
			offer = session.Direct{Step: session.DirectOffer, ID: 7, Peer: &session.DirectPeer{}}
			prepare(d)
			was := len(d.links)
			a.sent = nil
			defer func() { a.Encrypted = false }()
			d.offered(&a.Session, &offer)
			if len(d.links) != was {
				t.Error("it is taken")
			}
			if len(a.sent) != 2 || a.sent[0].Step != session.DirectEnd || a.sent[1].Step != session.DirectEnded {
				t.Errorf("the I/O unit is told %+v", a.sent)
			}
		})
	}
}

// TestHeldInTheClear begins an encrypted session beside a connection in the clear, which must not
// continue, and beside an encrypted one.
func TestHeldInTheClear(t *testing.T) {
	for _, cipher := range []seal.Cipher{"", seal.AES128GCM} {
		d, a := newTestDirect(1), newTestSession()
		a.Encrypted = true
		d.session, d.settled = &a.Session, true
		l := d.newTestLink(7, Established, 1)
		l.offer.Cipher = cipher
		why := l.hold()
		told, want := len(a.sent) == 1 && a.sent[0].Step == session.DirectHeld, cipher != ""
		if (why == nil) != want || told != want {
			t.Errorf("cipher %q: %+v, and the I/O unit is told %+v", cipher, why, a.sent)
		}
	}
}

// TestLeastUsed tests the choice of the connection that makes room for another one. It must not be
// one that is already ending.
func TestLeastUsed(t *testing.T) {
	d := newTestDirect(3)
	d.newTestLink(1, Ending, 1)
	oldest := d.newTestLink(2, Established, 2)
	d.newTestLink(3, Opening, 3)
	if d.leastUsed() != oldest || d.alive() != 2 {
		t.Error("another one goes")
	}
}

// TestUse passes frames over the older one of two connections. It expects the other one to make
// room for a third, and each to end when no frame has passed for the idle time.
func TestUse(t *testing.T) {
	begun := time.Unix(1000, 0)
	d := newTestDirect(2)
	d.cfg.Idle = time.Minute
	older := d.newTestLink(1, Established, begun.UnixNano())
	younger := d.newTestLink(2, Established, begun.Add(time.Second).UnixNano())
	if d.leastUsed() != older {
		t.Error("the younger connection goes, without frames over either")
	}
	at := func(seconds int) time.Time { return begun.Add(time.Duration(seconds) * time.Second) }
	if older.idles(5, at(59)) || younger.idles(0, at(59)) {
		t.Error("a connection is idle too early")
	}
	if d.leastUsed() != younger {
		t.Error("the connection that was used last goes")
	}
	if older.idles(5, at(118)) || !older.idles(5, at(119)) || !younger.idles(0, at(61)) {
		t.Error("a connection is idle too early or too late")
	}
}

// TestWordsOfAnotherSession expects a message about a link to be ignored if it arrives in a session
// that is not in use any more.
func TestWordsOfAnotherSession(t *testing.T) {
	d := newTestDirect(1)
	d.session = new(Session)
	l := d.newTestLink(7, Established, 1)
	m := &session.Direct{Step: session.DirectEnd, ID: 7}
	if d.Heard(new(Session), m); len(l.events) != 0 {
		t.Error("it is heard")
	}
	if d.Heard(d.session, m); len(l.events) != 1 {
		t.Error("the one in use is not heard")
	}
}

// TestHoldsOnce expects that a link is named only to the I/O unit of another session than the
// link's, once, and when that has the settings of the netdevice.
func TestHoldsOnce(t *testing.T) {
	d := newTestDirect(1)
	one, two := newTestSession(), newTestSession()
	l := d.newTestLink(7, Established, 1)
	l.session = &one.Session
	d.session, d.settled = &one.Session, true
	l.hold()
	d.session, d.settled = &two.Session, false
	l.hold()
	if len(one.sent)+len(two.sent) != 0 {
		t.Error("it is named too early, or to the I/O unit that knows it")
	}
	d.settled = true
	l.hold()
	l.hold()
	if len(one.sent) != 0 || len(two.sent) != 1 || two.sent[0].Step != session.DirectHeld || two.sent[0].ID != 7 {
		t.Errorf("told %+v, %+v", one.sent, two.sent)
	}
}

// served runs serve for a link in another goroutine, with these events already queued. The channel
// gets the reason for the end.
func (l *link) served(events ...event) <-chan *leaving {
	l.conn, l.session = &messaging.Conn{}, new(Session)
	l.events = make(chan event, 16)
	for _, e := range events {
		l.events <- e
	}
	why := make(chan *leaving, 1)
	go func() { why <- l.serve() }()
	return why
}

// TestEndedFirst has the peer end a connection before this host does. It expects this host not to
// wait for the peer.
func TestEndedFirst(t *testing.T) {
	l := newTestDirect(1).newTestLink(7, Established, 1)
	m := &session.Direct{Step: session.DirectEnded, ID: 7}
	if why := <-l.served(event{kind: eventMessage, message: m}); !l.gone || !why.failed {
		t.Errorf("it waits: %+v", why)
	}
}

// TestServeGrace has another session begin, whose I/O unit permits the connection, permits another
// one, or says nothing. It expects the connection to end in the latter cases.
func TestServeGrace(t *testing.T) {
	const grace = 300 * time.Millisecond
	type starter func(...event) (*link, <-chan *leaving)
	other := event{kind: eventOther}
	keep := func(change func(*session.Direct)) event {
		m := &session.Direct{Step: session.DirectKeep, Peer: &session.DirectPeer{}}
		change(m)
		return event{kind: eventMessage, message: m}
	}
	run := func(name string, test func(t *testing.T, start starter)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test(t, func(events ...event) (*link, <-chan *leaving) {
					d := newTestDirect(1)
					d.cfg.Idle, d.cfg.Grace = time.Hour, grace
					l := d.newTestLink(7, Established, time.Now().UnixNano())
					return l, l.served(events...)
				})
			})
		})
	}
	ends := func(t *testing.T, reason string, served <-chan *leaving) {
		t.Helper()
		if why := <-served; why.reason != reason {
			t.Errorf("it ends: %+v", why)
		}
	}
	run("kept", func(t *testing.T, start starter) {
		l, served := start(other, keep(func(*session.Direct) {}))
		time.Sleep(2 * grace)
		l.tell(event{kind: eventLeave, reason: "over"})
		ends(t, "over", served)
	})
	run("another peer", func(t *testing.T, start starter) {
		another := keep(func(m *session.Direct) { m.Peer.Platform = 9 })
		_, served := start(other, another, event{kind: eventLeave, reason: "nothing is wrong"})
		ends(t, "the I/O unit permits another connection than there is", served)
	})
	run("sessions come and go", func(t *testing.T, start starter) {
		l, served := start(other)
		for range 60 {
			time.Sleep(grace / 30)
			l.tell(other)
		}
		l.tell(event{kind: eventLeave, reason: "over"})
		ends(t, "no I/O unit has permitted it in time", served)
	})
}

// TestDirectChannels expects the channels of a direct connection to be configured by the offer, and
// bounded by the budget of direct connections.
func TestDirectChannels(t *testing.T) {
	d := newTestDirect(1)
	d.cfg.Messaging = func(protocol.Mode) messaging.Config {
		return messaging.Config{Pools: make([]messaging.PoolConfig, 3), LatencyQueue: true, Assigned: []int{1, 2}}
	}
	d.cfg.Budget = messaging.NewBudget(1 << 20)
	m := &session.Direct{Mode: protocol.ModeImm, MTU: 1400, Pools: 2, Secret: &session.DirectSecret{}}
	l := d.newTestLink(7, Opening, 1)
	l.offer = m
	c := l.messaging()
	if c.Queues != 1 || c.MTU != 1400 || c.PeerPools != 2 || c.MaxPools != 2 || len(c.Pools) != 2 || c.LatencyQueue ||
		c.LatencyPools != nil || c.Assigned != nil || c.Budget != d.cfg.Budget || c.Bind == nil {
		t.Errorf("%+v", c)
	}
	if !c.NoPack || c.Invalidation || c.OneTouch || c.KeySend {
		t.Error("there are features that the peer does not have")
	}
	m.Features = []string{protocol.FeaturePack, protocol.FeatureWindow, protocol.FeatureKeySend, protocol.FeatureOneTouch}
	if c := l.messaging(); c.NoPack || !c.Invalidation || !c.OneTouch || !c.KeySend {
		t.Error("features are not used")
	}
}
