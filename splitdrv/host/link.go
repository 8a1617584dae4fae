package host

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/host/paths"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// A link is a direct connection to another host. Its life, on a goroutine of its own, in
// the order of the functions below:
//
//	open    queue pairs are made upon the I/O unit's offer, their addresses go to the
//	        peer through the I/O unit, and the peer's come back
//	enter   probes go through the I/O unit and its LAN to the peer; when they have come,
//	        frames to the peer wait until markers, which follow those before, have come
//	serve   frames go directly, until something ends that
//	end     frames to the peer wait until all before have been delivered there, and go
//	        through the I/O unit again
type link struct {
	inbox
	observed
	d       *directCommon
	id      session.DirectID
	offer   *session.Direct
	session *attachment   // that brought the offer, or has permitted the link last
	rates   *rate.Limiter // of the peer's requests

	conn    *messaging.Conn
	moving  bool // StartData was called
	path    *paths.Path
	got     *session.Direct // the message that await has waited for
	gone    bool            // the peer has ended its side
	probed  chan struct{}   // closed when the peer's probes have come
	arrived chan struct{}   // closed when its markers have
	out, in paths.Nonces

	heard struct { // of the peer, over the connection
		probes, markers latch // it has those of this side
		pause           latch // it sends nothing more
	}
	began time.Time
	took  time.Duration // from then until frames went directly
}

// inbox is where others leave what a link has to know.
type inbox struct {
	events  chan event
	flooded latch // there was no room for an event
}

// observed is what others read of a link.
type observed struct {
	used  atomic.Int64 // Unix time of the last use seen, in nanoseconds
	shown atomic.Pointer[DirectStatus]
	port  atomic.Pointer[paths.Path] // path, for counts
	stats *messaging.Conn            // conn while it moves frames, for the status; guarded by directCommon.mu
	lost  atomic.Uint64              // frames that were about to be sent when it ended
	maybe atomic.Uint64              // frames that may or may not have been delivered then
}

// event is something that a link has to know.
type event struct {
	kind    eventKind
	message *session.Direct
	reason  string
}

type eventKind uint8

const (
	eventMessage eventKind = iota // from the I/O unit
	eventOther                    // there is another session, or none
	eventSettled                  // its I/O unit knows what the netdevice has been set to
	eventLeave                    // this host does not want it any more
)

// leaving is why a link ends.
type leaving struct {
	reason   string
	informed bool // the peer is, by the I/O unit
	failed   bool // there is no use in waiting for what is on its way
	late     bool // what was awaited has not come
}

func broken(reason string, err error) *leaving {
	return &leaving{reason: fmt.Sprintf("%s: %v", reason, err), failed: true}
}

var errFlooded = &leaving{reason: "the I/O unit says more than can be heard", failed: true}

func newLink(d *directCommon, a *attachment, offer *session.Direct) *link {
	l := &link{
		inbox: inbox{events: make(chan event, 64), flooded: newLatch()},
		d:     d, id: offer.ID, offer: offer, session: a, began: time.Now(),
		probed: make(chan struct{}), arrived: make(chan struct{}),
		rates: rate.NewLimiter(requestRate, requestBurst),
		out:   nonces(offer.Secret, a.client.Platform()), in: nonces(offer.Secret, offer.Peer.Platform),
	}
	l.heard.probes, l.heard.markers, l.heard.pause = newLatch(), newLatch(), newLatch()
	l.used.Store(l.began.UnixNano())
	l.show(DirectOpening)
	return l
}

// latch says that something has happened, for good.
type latch struct {
	happened chan struct{} // closed then
	once     *sync.Once
}

func newLatch() latch { return latch{make(chan struct{}), new(sync.Once)} }

// set may be called again.
func (l *latch) set() { l.once.Do(func() { close(l.happened) }) }

// nonces are those of the markers which a host sends.
func nonces(secret *session.DirectSecret, sender protocol.Platform) paths.Nonces {
	of := func(what string) protocol.MarkerNonce {
		text := binary.BigEndian.AppendUint64([]byte("splitnic "+what), uint64(sender))
		sum := sha256.Sum256(append(text, secret[:]...))
		return protocol.MarkerNonce(sum[:len(protocol.MarkerNonce{})])
	}
	return paths.Nonces{Probe: of("probe"), Marker: of("marker")}
}

// tell tells the link something. It never waits.
func (b *inbox) tell(e event) {
	select {
	case b.events <- e:
	default: // nobody has so much to say
		b.flooded.set()
	}
}

// show makes the state known.
func (l *link) show(s DirectState) {
	p := l.offer.Peer
	l.shown.Store(&DirectStatus{
		ID: l.id, Peer: p.Name, Platform: p.Platform, MACs: p.MACs, Mode: l.offer.Mode, State: s, Since: time.Now(),
		Took: l.took,
	})
}

// run is the link's goroutine.
func (l *link) run() {
	why := l.open()
	if why == nil {
		why = l.enter()
	}
	if why == nil {
		why = l.serve()
	}
	l.end(why)
}

// open makes the queue pairs and connects them.
func (l *link) open() *leaving {
	opening := time.Now().Add(5 * l.d.cfg.Direct.Answer)
	conn, err := messaging.New(l.messaging())
	if err != nil {
		return broken("make queue pairs", err)
	}
	l.conn = conn
	accept := &session.Direct{Step: session.DirectAccept, ID: l.id, ControlReceives: conn.ControlReceives()}
	for _, a := range conn.Addresses() {
		accept.Channels = append(accept.Channels, session.ChannelOf(a))
	}
	if err := l.session.send(accept); err != nil {
		return broken("accept", err)
	}
	if why := l.await(session.DirectConnect, nil, opening); why != nil {
		return why
	}
	remote := make([]fabric.Address, 0, len(l.got.Channels))
	for _, c := range l.got.Channels {
		remote = append(remote, c.Address())
	}
	if err := conn.Connect(remote, l.got.ControlReceives); err != nil {
		return broken("connect queue pairs", err)
	}
	if err := l.session.send(&session.Direct{Step: session.DirectReady, ID: l.id}); err != nil {
		return broken("ready", err)
	}
	return l.await(session.DirectStart, nil, opening)
}

// messaging is the configuration of the connection.
func (l *link) messaging() messaging.Config {
	c := l.d.messaging(l.offer)
	c.OnRequest = l.onRequest
	c.Capture = func(int) *capture.Path {
		p := l.offer.Peer
		return l.d.cfg.captures.Path("direct "+p.Name,
			fmt.Sprintf("direct connection to host %s, mode %s", p.Name, l.offer.Mode))
	}
	c.Pace = func(protocol.CfgType, []byte) time.Duration { return l.rates.Reserve().Delay() }
	return c
}

// onRequest is messaging.Config.OnRequest: it answers what the peer asks.
func (l *link) onRequest(t protocol.CfgType, data []byte) (protocol.CfgStatus, []byte) {
	switch t {
	case protocol.CfgArrived:
		switch n, err := protocol.DecodeMarkerNonce(data); {
		case err == nil && n == l.out.Probe:
			l.heard.probes.set()
		case err == nil && n == l.out.Marker:
			l.heard.markers.set()
		default:
			return protocol.CfgInvalid, nil
		}
		return protocol.CfgOK, nil
	case protocol.CfgLinkState:
		if s, err := protocol.DecodeLinkState(data); err != nil || s.Up {
			return protocol.CfgInvalid, nil
		}
		l.heard.pause.set()
		return protocol.CfgOK, data
	default:
		return protocol.CfgUnsupported, nil
	}
}

// await waits for a message of the I/O unit, or until done is closed, if that is not
// nil. It returns why the link ends if something else comes first, or nothing in time.
func (l *link) await(step session.DirectStep, done <-chan struct{}, until time.Time) *leaving {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for {
		select {
		case <-done:
			return nil
		case e := <-l.events:
			if e.kind == eventMessage && e.message.Step == step {
				l.got = e.message
				return nil
			}
			if why := l.happens(e); why != nil {
				return why
			}
			if e.kind == eventOther {
				return &leaving{reason: "the session with the I/O unit ended meanwhile", failed: true}
			}
		case <-l.flooded.happened:
			return errFlooded
		case <-l.conn.Done():
			return broken("the connection ended", l.conn.Err())
		case <-timer.C:
			return &leaving{reason: fmt.Sprintf("no %q in time", step), failed: true, late: true}
		}
	}
}

// happens takes an event, and returns why the link ends if it says so.
func (l *link) happens(e event) *leaving {
	switch {
	case e.kind == eventLeave:
		return &leaving{reason: e.reason}
	case e.kind == eventMessage && e.message.Step == session.DirectEnd:
		return &leaving{reason: e.message.Reason, informed: true}
	case e.kind == eventMessage && e.message.Step == session.DirectEnded:
		l.gone = true
		return &leaving{reason: "the peer has ended it", informed: true, failed: true}
	}
	return nil
}

// enter makes the path and puts it to use.
func (l *link) enter() *leaving {
	p := l.offer.Peer
	path, err := l.d.split.Open(paths.Peer{
		ID: uint64(l.id), MACs: p.MACs, Own: p.Own, VLANs: p.VLANs, MTU: l.offer.MTU,
		Out: l.out, In: l.in, Probed: func() { close(l.probed) }, Arrived: func() { close(l.arrived) },
	})
	if err != nil {
		return broken("open a path", err)
	}
	l.path = path
	l.port.Store(path)
	if err := l.conn.StartControl(); err != nil {
		return broken("start the control channel", err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), l.d.cfg.Direct.Answer, errors.New("no answer in time"))
	defer cancel()
	if err := l.conn.Reach(ctx); err != nil {
		return broken("reach the peer over the fabric", err)
	}
	l.moving = true
	if err := l.conn.StartData([]messaging.Port{path.Port()}, nil); err != nil {
		return broken("start the data channel", err)
	}
	l.showTraffic(l.conn)
	l.d.running.Go(l.report)
	path.Mark()
	if why := l.mark(l.heard.probes.happened); why != nil {
		return why
	}
	path.Enter()
	if why := l.mark(l.heard.markers.happened); why != nil {
		return why
	}
	path.Confirm()
	l.took = time.Since(l.began)
	l.show(DirectEstablished)
	l.d.cfg.Log.Info("direct connection established", "peer", p.Name, "platform", p.Platform, "mode", l.offer.Mode,
		"took", l.took.Round(time.Microsecond))
	return nil
}

// report tells the peer when its probes have come, and its markers.
func (l *link) report() {
	report := func(come <-chan struct{}, n protocol.MarkerNonce) {
		select {
		case <-come:
		case <-l.conn.Done():
			return
		}
		_, err := l.conn.Request(context.Background(), protocol.CfgArrived, protocol.AppendMarkerNonce(nil, n))
		if err != nil {
			l.d.cfg.Log.Debug("the peer's markers have come", "peer", l.offer.Peer.Name, "error", err)
		}
	}
	report(l.probed, l.in.Probe)
	report(l.arrived, l.in.Marker)
}

// showTraffic has the status show the traffic of a connection, or of none.
func (l *link) showTraffic(conn *messaging.Conn) {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	l.stats = conn
}

// mark sends markers again until the peer has them.
func (l *link) mark(come <-chan struct{}) *leaving {
	until := time.Now().Add(l.d.cfg.Direct.Answer)
	for again := directRemind; ; again = min(2*again, directAgain) {
		why := l.await("", come, time.Now().Add(again))
		switch {
		case why == nil || !why.late:
			return why
		case time.Now().After(until):
			return &leaving{reason: "markers do not get through the LAN: does it pass frames between these hosts?"}
		}
		l.path.Mark()
	}
}

// serve waits until something ends the link.
func (l *link) serve() *leaving {
	cfg := &l.d.cfg.Direct
	look := time.NewTicker(max(cfg.Idle/4, time.Millisecond))
	defer look.Stop()
	var grace <-chan time.Time // until another I/O unit has to have permitted it; nil: one has
	frames := uint64(0)
	for {
		select {
		case e := <-l.events:
			if why := l.happens(e); why != nil {
				return why
			}
			switch e.kind {
			case eventLeave: // which happens returns
			case eventOther:
				if grace == nil {
					grace = time.After(cfg.Grace)
				}
			case eventSettled:
				l.hold()
			case eventMessage:
				if e.message.Step != session.DirectKeep {
					break
				}
				if !e.message.Peer.Equal(l.offer.Peer) || l.session.welcome.MTU != l.offer.MTU {
					return &leaving{reason: "the I/O unit permits another connection than there is"}
				}
				grace = nil
			}
		case <-l.flooded.happened:
			return errFlooded
		case <-l.heard.pause.happened: // its I/O unit has told it to, and that is not this host's any more
			return &leaving{reason: "the peer ends it"}
		case <-l.conn.Done():
			return broken("the connection ended", l.conn.Err())
		case <-grace:
			return &leaving{reason: "no I/O unit has permitted it in time"}
		case <-look.C:
			c := l.path.Counts()
			if now := c.InFrames + c.OutFrames; now != frames {
				frames = now
				l.used.Store(time.Now().UnixNano())
			} else if time.Since(time.Unix(0, l.used.Load())) >= cfg.Idle {
				return &leaving{reason: "idle"}
			}
		}
	}
}

// hold tells the I/O unit of the session in use, if there is one, that the link goes on
// from before.
func (l *link) hold() {
	a, settled := l.d.inUse()
	if !settled || a == l.session {
		return
	}
	l.session = a
	err := a.send(&session.Direct{Step: session.DirectHeld, ID: l.id, Platform: l.offer.Peer.Platform})
	if err != nil {
		l.d.cfg.Log.Debug("direct connection held", "peer", l.offer.Peer.Name, "error", err)
	}
}

// end goes back to the path through the I/O unit, and releases everything.
func (l *link) end(why *leaving) {
	log := l.d.cfg.Log.With("peer", l.offer.Peer.Name, "reason", why.reason)
	l.show(DirectEnding)
	if l.path != nil {
		l.path.Leave()
	}
	say := func(m *session.Direct) {
		if err := l.session.send(m); err != nil {
			log.Debug("direct connection: message not delivered", "step", m.Step, "error", err)
		}
	}
	if !why.informed {
		say(&session.Direct{Step: session.DirectEnd, ID: l.id, Reason: why.reason})
	}
	var left *messaging.Unsent
	if l.conn != nil {
		if l.moving {
			drained := !why.failed && l.drain()
			l.showTraffic(nil)
			left = l.conn.Stop()
			l.lost.Add(left.Lost)
			if !drained {
				l.maybe.Add(left.Uncertain)
			}
		}
		conn := l.conn
		l.d.retired.add(func() {
			if err := conn.Close(); err != nil {
				log.Debug("end of a direct connection", "error", err)
			}
		})
	}
	say(&session.Direct{Step: session.DirectEnded, ID: l.id})
	if l.path != nil {
		if l.moving {
			l.awaitEnded()
		}
		l.path.Close(left)
	}
	log.Info("direct connection ended", "lasted", time.Since(l.began).Round(time.Millisecond))
}

// drain waits until everything that was sent has arrived, either way, and reports
// whether that is so of what this side has sent. It is when the peer has answered behind it,
// whatever becomes of what follows: the peer may be gone before this side has its last reply.
func (l *link) drain() (arrived bool) {
	ctx, cancel := context.WithTimeout(context.Background(), l.d.cfg.Direct.Drain)
	defer cancel()
	debug := func(err error) {
		l.d.cfg.Log.Debug("direct connection not drained", "peer", l.offer.Peer.Name, "error", err)
	}
	if err := l.conn.Pause(ctx); err != nil {
		debug(err)
		return false
	}
	down := protocol.AppendLinkState(nil, protocol.LinkState{})
	if _, err := l.conn.Request(ctx, protocol.CfgLinkState, down); err != nil {
		debug(err)
	}
	select {
	case <-l.heard.pause.happened:
	case <-ctx.Done():
	case <-l.conn.Done():
	}
	return true
}

// awaitEnded waits until the peer has delivered what has come to it.
func (l *link) awaitEnded() {
	timer := time.NewTimer(5 * l.d.cfg.Direct.Drain)
	defer timer.Stop()
	for !l.gone {
		select {
		case e := <-l.events:
			l.gone = e.kind == eventMessage && e.message.Step == session.DirectEnded
		case <-timer.C:
			return
		}
	}
}

// counts are the link's until now.
func (o *observed) counts() DirectCounts {
	c := DirectCounts{Lost: o.lost.Load(), Uncertain: o.maybe.Load()}
	if p := o.port.Load(); p != nil {
		c.Counts = p.Counts()
	}
	return c
}
