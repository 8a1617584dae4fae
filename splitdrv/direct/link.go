package direct

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/direct/internal/paths"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// Pauses before markers are sent again: remindAfter at first, doubled up to remindMost.
const (
	remindAfter = 5 * time.Millisecond
	remindMost  = time.Second / 2
)

// The limit for requests of a peer: at once, and per second in the long run. An honest one
// reports its probes and markers, and sends one when it ends the connection.
const (
	requestBurst = 32
	requestRate  = 10
)

// A link is a direct connection to another host. Its goroutine goes through these steps, in
// the order of the functions below:
//
//	open    creates queue pairs after the I/O unit's offer, and exchanges their addresses
//	        with the peer through the I/O unit
//	enter   sends probes through the I/O unit and its LAN to the peer. When they have arrived,
//	        frames to the peer wait until markers, sent behind earlier frames, have arrived
//	serve   frames go directly, until something ends the link
//	end     frames to the peer wait until all earlier ones are delivered, and then go through
//	        the I/O unit again
type link struct {
	inbox
	observed
	d       *shared
	id      session.DirectID
	offer   *session.Direct
	session *Session      // session of the offer, or of the last permission
	author  *Session      // session of the offer, whose I/O unit knows the secret
	rates   *rate.Limiter // rate of the peer's requests

	conn    *messaging.Conn
	moving  bool // StartData was called
	path    *paths.Path
	got     *session.Direct // message that await has waited for
	gone    bool            // the peer has ended its side
	probed  chan struct{}   // closed when the peer's probes have arrived
	arrived chan struct{}   // closed when the peer's markers have arrived
	out, in paths.Nonces

	heard struct { // reports of the peer, over the connection
		probes, markers latch // this side's have arrived there
		pause           latch // the peer sends no more frames
	}
	full  latch // the path was given up, because too many frames waited for the markers
	began time.Time
	took  time.Duration // from began until frames went directly

	frames uint64 // that had passed when serve last looked
}

// inbox has the events that other goroutines send to a link.
type inbox struct {
	events  chan event
	flooded latch // set if there was no room for an event
}

// observed is the part of a link that other goroutines read.
type observed struct {
	used  atomic.Int64 // Unix time of the last observed use, in nanoseconds
	shown atomic.Pointer[ConnectionStatus]
	port  atomic.Pointer[paths.Path] // path, for counts
	stats *messaging.Conn            // conn while it moves frames, for the status; guarded by shared.mu
	lost  atomic.Uint64              // frames in a batch that could not be posted at the end
	maybe atomic.Uint64              // frames sent, and not known to be delivered at the end
}

type event struct {
	kind    eventKind
	message *session.Direct
	reason  string
}

type eventKind uint8

const (
	eventMessage eventKind = iota // a message of the I/O unit
	eventOther                    // another session is in use, or none
	eventSettled                  // the I/O unit of the session in use has the netdevice's settings
	eventLeave                    // this host ends the link
)

// leaving is the reason for the end of a link.
type leaving struct {
	reason   string
	informed bool // the I/O unit has informed the peer
	failed   bool // frames in flight are not waited for
	late     bool // an awaited message did not arrive in time
}

func broken(reason string, err error) *leaving {
	return &leaving{reason: fmt.Sprintf("%s: %v", reason, err), failed: true}
}

// errUnconfirmed is the reason for the end of a connection of which the path was given up. None
// of its frames has gone directly.
var errUnconfirmed = &leaving{
	reason: "the peer has not confirmed the markers while there was room for its frames", failed: true,
}

var errFlooded = &leaving{reason: "the I/O unit says more than can be heard", failed: true}

func newLink(d *shared, a *Session, offer *session.Direct) *link {
	l := &link{
		inbox: inbox{events: make(chan event, 64), flooded: newLatch()},
		d:     d, id: offer.ID, offer: offer, session: a, author: a, began: time.Now(),
		probed: make(chan struct{}), arrived: make(chan struct{}),
		rates: rate.NewLimiter(requestRate, requestBurst),
		out:   nonces(offer.Secret, a.Platform), in: nonces(offer.Secret, offer.Peer.Platform),
	}
	l.heard.probes, l.heard.markers, l.heard.pause = newLatch(), newLatch(), newLatch()
	l.full = newLatch()
	l.used.Store(l.began.UnixNano())
	l.show(Opening)
	return l
}

// latch is a flag that can be set and waited for, and is never reset.
type latch struct {
	happened chan struct{} // closed when it is set
	once     *sync.Once
}

func newLatch() latch { return latch{make(chan struct{}), new(sync.Once)} }

// set sets the latch. It may be called several times.
func (l *latch) set() { l.once.Do(func() { close(l.happened) }) }

// nonces returns the nonces of the markers that a host sends.
func nonces(secret *session.DirectSecret, sender protocol.Platform) paths.Nonces {
	of := func(what string) protocol.MarkerNonce {
		text := binary.BigEndian.AppendUint64([]byte("splitnic "+what), uint64(sender))
		sum := sha256.Sum256(append(text, secret[:]...))
		return protocol.MarkerNonce(sum[:len(protocol.MarkerNonce{})])
	}
	return paths.Nonces{Probe: of("probe"), Marker: of("marker")}
}

// tell sends an event to the link. It never waits.
func (b *inbox) tell(e event) {
	select {
	case b.events <- e:
	default: // no honest I/O unit sends that many messages
		b.flooded.set()
	}
}

func (l *link) show(s State) {
	p := l.offer.Peer
	l.shown.Store(&ConnectionStatus{
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

// open creates and connects the queue pairs.
func (l *link) open() *leaving {
	opening := time.Now().Add(5 * l.d.cfg.Answer)
	cfg := l.messaging()
	if l.offer.Cipher != "" {
		var err error
		if cfg.Keys, err = seal.NewKeys(l.offer.Cipher, seal.OfDirect(*l.offer.Secret), l.offer.First); err != nil {
			return broken("encrypt", err)
		}
		if err := l.d.cfg.KeyLog.Add(l.id.String(), cfg.Keys); err != nil {
			l.d.cfg.Log.Warn("the secret of the direct connection was not logged", "error", err)
		}
	}
	conn, err := messaging.New(cfg)
	if err != nil {
		return broken("make queue pairs", err)
	}
	l.conn = conn
	if err := l.session.Send(&session.Direct{
		Step: session.DirectAccept, ID: l.id,
		ControlReceives: conn.ControlReceives(), Channels: session.Channels(conn.Addresses()),
	}); err != nil {
		return broken("accept", err)
	}
	if why := l.await(session.DirectConnect, nil, opening); why != nil {
		return why
	}
	if err := conn.Connect(session.Addresses(l.got.Channels), l.got.ControlReceives); err != nil {
		return broken("connect queue pairs", err)
	}
	if err := l.session.Send(&session.Direct{Step: session.DirectReady, ID: l.id}); err != nil {
		return broken("ready", err)
	}
	return l.await(session.DirectStart, nil, opening)
}

// messaging returns the configuration of the connection's channels.
func (l *link) messaging() messaging.Config {
	m, cfg := l.offer, l.d.cfg
	c := cfg.Messaging(m.Mode)
	has := func(feature string) bool { return slices.Contains(m.Features, feature) }
	c.Queues, c.MTU, c.PeerPools, c.MaxPools = 1, m.MTU, m.Pools, m.Pools
	c.Pools = c.Pools[:min(len(c.Pools), m.Pools)]
	c.LatencyQueue, c.LatencyPools, c.Assigned = false, nil, nil
	c.NoPack = !has(protocol.FeaturePack)
	c.Invalidation, c.OneTouch = has(protocol.FeatureWindow), has(protocol.FeatureOneTouch)
	c.KeySend = has(protocol.FeatureKeySend)
	c.Budget, c.ZeroCopy = cfg.Budget, nil // frames of several paths are copied
	c.ProvePath = has(protocol.FeaturePathMTU)
	c.Bind = messaging.NewBinding(*m.Secret, m.First)
	c.OnRequest = l.onRequest
	c.Capture = func(int) *capture.Path {
		return cfg.Captures.Path("direct "+m.Peer.Name,
			fmt.Sprintf("direct connection to host %s, mode %s", m.Peer.Name, m.Mode))
	}
	c.Pace = func(protocol.CfgType, []byte) time.Duration { return l.rates.Reserve().Delay() }
	return c
}

// onRequest answers the requests of the peer (messaging.Config.OnRequest).
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

// await waits for a message of the I/O unit, or until done, which may be nil, is closed. If
// another event ends the link first, or time is up, it returns the reason.
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
		case <-l.full.happened:
			return errUnconfirmed
		case <-l.conn.Done():
			return broken("the connection ended", l.conn.Err())
		case <-timer.C:
			return &leaving{reason: fmt.Sprintf("no %q in time", step), failed: true, late: true}
		}
	}
}

// happens handles an event, and returns the reason if it ends the link.
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

// enter opens the path and moves the peer's frames to it.
func (l *link) enter() *leaving {
	p := l.offer.Peer
	path, err := l.d.split.Open(paths.Peer{
		MACs: p.MACs, Own: p.Own, VLANs: p.VLANs, MTU: l.offer.MTU,
		Out: l.out, In: l.in, Probed: func() { close(l.probed) }, Arrived: func() { close(l.arrived) },
		Overflowed: l.full.set,
	})
	if err != nil {
		return broken("open a path", err)
	}
	l.path = path
	l.port.Store(path)
	if err := l.conn.StartControl(); err != nil {
		return broken("start the control channel", err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), l.d.cfg.Answer, errors.New("no answer in time"))
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
	l.show(Established)
	l.d.cfg.Log.Info("direct connection established", "peer", p.Name, "platform", p.Platform, "mode", l.offer.Mode,
		"took", l.took.Round(time.Microsecond))
	return nil
}

// report reports to the peer when its probes and markers have arrived.
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

// showTraffic sets the connection whose traffic is in the status; nil: none.
func (l *link) showTraffic(conn *messaging.Conn) {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	l.stats = conn
}

// mark repeats the markers until the peer has received them (come is closed).
func (l *link) mark(come <-chan struct{}) *leaving {
	until := time.Now().Add(l.d.cfg.Answer)
	for again := remindAfter; ; again = min(2*again, remindMost) {
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

// idles records that the link was used if it has passed more frames than at the last call. It
// reports whether the link was unused for so long that it ends.
func (l *link) idles(frames uint64, now time.Time) bool {
	if frames != l.frames {
		l.frames = frames
		l.used.Store(now.UnixNano())
	}
	return now.Sub(time.Unix(0, l.used.Load())) >= l.d.cfg.Idle
}

// serve waits until something ends the link.
func (l *link) serve() *leaving {
	cfg := l.d.cfg
	look := time.NewTicker(max(cfg.Idle/4, time.Millisecond))
	defer look.Stop()
	origin := origin{of: l.author, security: cfg.Security}
	defer origin.stop()
	var grace <-chan time.Time // deadline for the permission of another I/O unit; nil: permitted
	for {
		if origin.check() != nil {
			return &leaving{reason: "the I/O unit that made it is not trusted any more"}
		}
		select {
		case <-origin.changed:
		case <-origin.expired:
		case e := <-l.events:
			if why := l.happens(e); why != nil {
				return why
			}
			switch e.kind {
			case eventLeave: // happens has returned a reason
			case eventOther:
				if grace == nil {
					grace = time.After(cfg.Grace)
				}
			case eventSettled:
				if why := l.hold(); why != nil {
					return why
				}
			case eventMessage:
				if e.message.Step != session.DirectKeep {
					break
				}
				if !e.message.Peer.Equal(l.offer.Peer) || l.session.MTU != l.offer.MTU {
					return &leaving{reason: "the I/O unit permits another connection than there is"}
				}
				grace = nil
			}
		case <-l.flooded.happened:
			return errFlooded
		case <-l.heard.pause.happened: // by order of its I/O unit, which is not that of this host any more
			return &leaving{reason: "the peer ends it"}
		case <-l.conn.Done():
			return broken("the connection ended", l.conn.Err())
		case <-grace:
			return &leaving{reason: "no I/O unit has permitted it in time"}
		case <-look.C:
			if c := l.path.Counts(); l.idles(c.InFrames+c.OutFrames, time.Now()) {
				return &leaving{reason: "idle"}
			}
		}
	}
}

// hold tells the I/O unit of the session in use, if any, that the link exists from before. Beside an
// encrypted session only an encrypted link continues.
func (l *link) hold() *leaving {
	a, settled := l.d.inUse()
	if !settled || a == l.session {
		return nil
	}
	if a.Encrypted && l.offer.Cipher == "" {
		return &leaving{reason: "this host needs encryption"}
	}
	l.session = a
	err := a.Send(&session.Direct{Step: session.DirectHeld, ID: l.id, Platform: l.offer.Peer.Platform})
	if err != nil {
		l.d.cfg.Log.Debug("direct connection held", "peer", l.offer.Peer.Name, "error", err)
	}
	return nil
}

// end moves the peer's frames back to the path through the I/O unit, and releases
// everything.
func (l *link) end(why *leaving) {
	log := l.d.cfg.Log.With("peer", l.offer.Peer.Name, "reason", why.reason)
	l.show(Ending)
	if l.path != nil {
		l.path.Leave()
	}
	say := func(m *session.Direct) {
		if err := l.session.Send(m); err != nil {
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
		l.d.cfg.Background(func() {
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

// drain waits until all frames in flight have arrived, in both directions. It reports
// whether those of this side have. That is known once Pause has succeeded, whatever happens
// to the messages after that: the peer may end before it has sent its last reply.
func (l *link) drain() (arrived bool) {
	ctx, cancel := context.WithTimeout(context.Background(), l.d.cfg.Drain)
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

// awaitEnded waits until the peer has delivered the frames that it has received.
func (l *link) awaitEnded() {
	timer := time.NewTimer(5 * l.d.cfg.Drain)
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

// counts returns the counters of the link.
func (o *observed) counts() Counts {
	c := Counts{Lost: o.lost.Load(), Uncertain: o.maybe.Load()}
	if p := o.port.Load(); p != nil {
		c.Counts = p.Counts()
	}
	return c
}
