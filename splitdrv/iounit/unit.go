package iounit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/limit"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap/steer"
)

// Config describes an I/O unit.
type Config struct {
	Name     string // of this I/O unit, for the hosts' logs and status
	Software string // version, for people
	Device   fabric.Device
	// OpenLAN opens a host's interface on the network card.
	OpenLAN func(mac net.HardwareAddr, queues int) (lan.Interface, error)
	// Latency, which may be nil, says which frames from the LAN are
	// latency-sensitive: hosts that want a latency channel get one then, besides
	// those that MaxQueues and the policy allow. OpenLatencyLAN opens the
	// interface with the queues of the rule, the last of which gets those frames;
	// when the kernel cannot do it, its error wraps steer.ErrUnavailable and the
	// host gets an interface by OpenLAN.
	Latency        *steer.Classes
	OpenLatencyLAN func(mac net.HardwareAddr, rule steer.Rule) (lan.Interface, error)
	// LinkState reads the state of the network card.
	LinkState func() (lan.LinkState, error)
	// CardMAC reads the network card's own address, which no host may have; the
	// zero address if it has none. Nil is for a card that has none.
	CardMAC   func() protocol.MAC
	MaxQueues int             // data channels for each host at most; default 1
	MaxHosts  int             // sessions at a time; default 64
	Modes     []protocol.Mode // transfer modes; default all
	Policy    *policy.Policy  // what each host may do; default policy.Default()
	// Messaging is the template for each session. Device, Mode, Queues, MTU,
	// PeerPools, LatencyQueue, LatencyPools, Invalidation, OneTouch, KeySend, OnRequest and
	// Pace are set here, and MaxMemory where the policy bounds it.
	Messaging messaging.Config
	// Direct is on where hosts may have direct connections with each other: those two
	// each that exchange DirectAfter packets in a second, or any if that is 0.
	Direct      bool
	DirectAfter int
	DirectPeers int // of a host at a time; default 64
	// DirectGrace is for both hosts to come that had one before, DirectAnswer for each
	// step that a host has to take; default 2 s.
	DirectGrace, DirectAnswer time.Duration
	Log                       *slog.Logger
}

// Unit is an I/O unit.
type Unit struct {
	cfg        Config
	protecting messaging.Protecting // in modes that lend memory
	started    time.Time
	sessions   sync.WaitGroup
	served     atomic.Uint64
	unrevoked  atomic.Uint64 // frames that had come when their session ended, in one-touch elements not revoked yet
	lines      limit.Log     // about connections
	accounts   accounts
	setups     *limit.Queue[limit.Key] // see newSetups
	requests   *limit.Keyed            // what hosts' requests cost

	taken    atomic.Pointer[protocol.MACSet]  // of the card and of all hosts
	owners   atomic.Pointer[owners]           // of the addresses of hosts that may have direct connections
	direct   *directing                       // nil where none may
	listener atomic.Pointer[session.Listener] // nil before Run

	mu         sync.Mutex
	policy     *policy.Policy
	hosts      map[string]*attachment        // by key
	granted    []grant                       // the latest ones last
	violations map[string]uint64             // of the protocol, by rule
	refused    map[string]uint64             // connections and hosts, by reason
	ended      map[string]uint64             // sessions that were established, by reason
	handling   map[string]messaging.Handling // by key, of hosts for which it was changed
}

// New makes an I/O unit. Nothing happens before Run.
func New(cfg Config) (*Unit, error) {
	if cfg.MaxQueues == 0 {
		cfg.MaxQueues = 1
	}
	if cfg.MaxHosts == 0 {
		cfg.MaxHosts = 64
	}
	if cfg.DirectPeers == 0 {
		cfg.DirectPeers = 64
	}
	cfg.DirectGrace = cmp.Or(cfg.DirectGrace, 2*time.Second)
	cfg.DirectAnswer = cmp.Or(cfg.DirectAnswer, 2*time.Second)
	if cfg.Modes == nil {
		cfg.Modes = protocol.Modes()
	}
	if cfg.Policy == nil {
		cfg.Policy = policy.Default()
	}
	if cfg.CardMAC == nil {
		cfg.CardMAC = func() protocol.MAC { return protocol.MAC{} }
	}
	if cfg.OpenLAN == nil || cfg.LinkState == nil || cfg.Device == nil {
		return nil, errors.New("iounit: a device and a network card are required")
	}
	if cfg.Latency != nil {
		if cfg.OpenLatencyLAN == nil {
			return nil, errors.New("iounit: a latency queue needs OpenLatencyLAN")
		}
		if err := cfg.Latency.Check(); err != nil {
			return nil, fmt.Errorf("iounit: %w", err)
		}
	}
	protecting, err := messaging.ProtectionOn(cfg.Messaging.Protection, cfg.Device.Limits())
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", cfg.Device.Name(), err)
	}
	u := &Unit{
		cfg: cfg, protecting: protecting, started: time.Now(), setups: newSetups(),
		requests: limit.NewKeyed(requestRate),
		policy:   cfg.Policy, hosts: make(map[string]*attachment), handling: make(map[string]messaging.Handling),
		violations: make(map[string]uint64), refused: make(map[string]uint64), ended: make(map[string]uint64),
	}
	u.taken.Store(new(protocol.MACSet))
	if cfg.Direct {
		u.direct = newDirecting(u)
	}
	return u, nil
}

// Run serves the hosts that ln delivers until ctx is done. Then it ends all
// sessions, waits for them, and returns nil. ln stays the caller's.
func (u *Unit) Run(ctx context.Context, ln *session.Listener) error {
	u.listener.Store(ln)
	defer u.sessions.Wait()
	u.sessions.Go(func() { u.direct.run(ctx) })
	for {
		s, err := ln.Accept(ctx)
		if ctx.Err() != nil {
			if err == nil {
				_ = s.Refuse(session.CodeShuttingDown, "the I/O unit is shutting down")
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept hosts: %w", err)
		}
		u.sessions.Go(func() { u.serve(ctx, s) })
	}
}

// Rejected counts and logs a connection that never became a session. It is for
// session.ServerConfig.Rejected.
func (u *Unit) Rejected(remote net.Addr, err error) {
	u.turnedAway(session.Reason(err))
	u.lines.Once(connectionRefused(remote, err), u.cfg.Log, slog.LevelWarn, "connection refused",
		"from", remote, "reason", err)
}

// leastBurst is how many sessions a key may open at once, however few it may
// have: enough for every restart and fail-over of its hosts that comes soon after
// another.
const leastBurst = 16

// Burst is how many sessions a peer may open at once: all that it may have, twice,
// as after a restart of this I/O unit, and leastBurst at least. It is for
// session.ServerConfig.Burst.
func (u *Unit) Burst(id session.Identity) int {
	if id.Insecure {
		return max(leastBurst, 2*u.cfg.MaxHosts) // all hosts may come from there
	}
	u.mu.Lock()
	p := u.policy
	u.mu.Unlock()
	return max(leastBurst, 2*p.For(id.Fingerprint.String(), id.Name).MaxSessions)
}

// serve runs one host's session from beginning to end.
func (u *Unit) serve(ctx context.Context, s *session.Server) {
	hello := s.Hello()
	log := u.cfg.Log.With("host", hello.Name, "from", s.RemoteAddr(), "key", s.Peer())
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := &attachment{
		unit: u, s: s, peer: s.Peer, hello: hello, log: log, key: hostKey(s.Peer(), hello.Name),
		ownKey: ownKey(s.Peer(), hello.Name), limits: s.LimitKey(),
		cancel: cancel, gone: make(chan struct{}), since: time.Now(),
	}
	if id := s.Peer(); !id.Insecure {
		a.owner = id.Fingerprint.String()
	}
	defer close(a.gone)
	if err := u.enter(ctx, a, patience(time.Now(), s.Deadline())); err != nil {
		u.refuseForNow(a, err)
		return
	}
	defer u.leave(a)
	if err := a.run(ctx); err != nil {
		u.over(a, err)
	}
}

// over counts and logs why a session ended, or never came about.
func (u *Unit) over(a *attachment, err error) {
	args := []any{"session", a.s.SessionID(), "reason", err, "lasted", time.Since(a.since).Round(time.Millisecond)}
	if a.established {
		u.violation(err)
		u.count(u.ended, ending(err))
		a.log.Warn("session ended", args...)
		return
	}
	reason := session.Reason(err)
	if errors.Is(err, errPolicy) {
		reason = string(session.CodePolicy)
	}
	u.turnedAway(reason)
	u.lines.Once(hostRefused(a.key, reason, err), a.log, slog.LevelWarn, "session ended", args...)
}

// refuseForNow refuses a host that is asked to come again.
func (u *Unit) refuseForNow(a *attachment, err error) {
	code := session.CodeBusy
	switch {
	case errors.Is(err, errFull), errors.Is(err, errSessions):
		code = session.CodeFull
	case errors.Is(err, context.Canceled):
		code, err = session.CodeShuttingDown, errShuttingDown
	}
	u.refuse(a, code, err)
}

func (u *Unit) refuse(a *attachment, code session.Code, err error) {
	u.turnedAway(string(code))
	u.lines.Once(hostRefused(a.key, string(code), err), a.log, slog.LevelWarn, "host refused", "code", code, "reason", err)
	if err := a.s.Refuse(code, err.Error()); err != nil {
		a.log.Debug("refusal not delivered", "reason", err)
	}
}

var (
	errFull         = errors.New("as many hosts are connected as there can be (--max-hosts)")
	errSessions     = errors.New("this key has as many sessions as it may have (max-sessions in the policy)")
	errReplaced     = errors.New("a newer session of this host's name and key took its place; two hosts with one key need a --host-name each")
	errShuttingDown = errors.New("the I/O unit is shutting down")
	errEnding       = errors.New("this host's last session is still being ended; if that lasts, its interface on the network card hangs")
)

// patience is until when a host's last session has to be ended: half of the time
// that is left for the handshake, so that the host hears why it gets no session.
func patience(now, deadline time.Time) time.Time { return now.Add(deadline.Sub(now) / 2) }

// enter gives a its place among the hosts. A host that comes again, because it
// was killed, or lost the connection and we have not noticed yet, takes the
// place of its old session, which is ended first, before deadline. The latest comer
// wins, in whatever order those who wait for the old session get their turn.
func (u *Unit) enter(ctx context.Context, a *attachment, deadline time.Time) error {
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, errEnding)
	defer cancel()
	for {
		u.mu.Lock()
		old := u.present(a)
		if old == nil {
			defer u.mu.Unlock()
			a.policy = u.policyOf(u.policy, a)
			if len(u.hosts) >= u.cfg.MaxHosts {
				return fmt.Errorf("%w: %d", errFull, len(u.hosts))
			}
			if n := u.sessionsOf(a.owner); a.owner != "" && n >= a.policy.MaxSessions {
				return fmt.Errorf("%w: %d", errSessions, n)
			}
			a.share = a.policy.Share
			u.hosts[a.key] = a
			return nil
		}
		u.mu.Unlock()
		if old.since.After(a.since) {
			return errReplaced
		}
		old.cancel(errReplaced)
		select {
		case <-old.gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// present is the session that a takes the place of, nil if there is none. The
// host of one that has begun may have got its name since, by another list of
// trusted keys. The caller holds u.mu.
func (u *Unit) present(a *attachment) *attachment {
	if old := u.hosts[a.key]; old != nil {
		return old
	}
	for _, old := range u.hosts {
		if old.hello.Name == a.hello.Name && hostKey(old.peer(), old.hello.Name) == a.key {
			return old
		}
	}
	return nil
}

// sessionsOf is how many sessions one key has. The caller holds u.mu.
func (u *Unit) sessionsOf(owner string) int {
	n := 0
	for _, a := range u.hosts {
		if a.owner == owner {
			n++
		}
	}
	return n
}

func (u *Unit) leave(a *attachment) {
	card := u.cfg.CardMAC()
	u.mu.Lock()
	defer u.mu.Unlock()
	if a.own.Valid() && a.mac == a.own { // its key may have got a name since
		u.remember(grant{key: hostKey(a.peer(), a.hello.Name), mac: a.own})
	}
	delete(u.hosts, a.key)
	u.publish(card)
}

// turnedAway counts a connection, or a host, that got no session.
func (u *Unit) turnedAway(reason string) { u.count(u.refused, reason) }

// count counts something in one of the maps that u.mu guards.
func (u *Unit) count(in map[string]uint64, what string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	in[what]++
}

// Refusals are the reasons by which connections and hosts are counted that got
// no session: session.Reasons, and the codes with which a host is refused.
func Refusals() []string {
	reasons := session.Reasons()
	for _, c := range []session.Code{session.CodeMode, session.CodePolicy, session.CodeBusy, session.CodeFull,
		session.CodeShuttingDown, session.CodeFailed} {
		reasons = append(reasons, string(c))
	}
	return reasons
}

// bootstrap precedes the names of rules that are broken on the bootstrap
// connection of a session.
const bootstrap = "bootstrap-"

// Rules are those that a host can break once its session is established:
// messaging.Codes, and those of the bootstrap connection.
func Rules() []string {
	rules := messaging.Codes()
	for _, err := range bootstrapRules {
		rules = append(rules, bootstrap+session.Reason(err))
	}
	return rules
}

var bootstrapRules = []error{session.ErrFrame, session.ErrMessage, session.ErrUnexpected}

// brokenRule is the name of the rule that a host broke, "" if that is not what err
// is about.
func brokenRule(err error) string {
	var broken *messaging.ProtocolError
	switch {
	case errors.As(err, &broken):
		return broken.Code()
	case slices.ContainsFunc(bootstrapRules, func(r error) bool { return errors.Is(err, r) }):
		return bootstrap + session.Reason(err)
	default:
		return ""
	}
}

// violation counts the rule that a host broke, if that is what ended its
// session.
func (u *Unit) violation(err error) {
	rule := brokenRule(err)
	if rule == "" {
		return
	}
	u.count(u.violations, rule)
}

// hostKey tells hosts apart: by what they proved to be, if they did, and by
// name, because one key may serve several netdevices of a machine. Keys that are
// trusted by one name are one host's, which changes from one to the other.
func hostKey(id session.Identity, name string) string {
	if !id.Insecure && id.Name != "" {
		return id.Name + "/" + name // a fingerprint has a colon, which no name has
	}
	return ownKey(id, name)
}

// ownKey is hostKey for one key.
func ownKey(id session.Identity, name string) string {
	if id.Insecure {
		return "/" + name
	}
	return id.Fingerprint.String() + "/" + name
}
