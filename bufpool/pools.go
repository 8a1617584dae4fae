package bufpool

import (
	"errors"
	"fmt"
	"time"
)

// What a peer can do wrong with pools.
var (
	// ErrPool is wrapped when the peer names a pool that is not lent, or not any
	// more.
	ErrPool = errors.New("pool that was not lent on this channel")
	// ErrPoolTwice is wrapped when the peer lends a pool under a reference that is
	// in use.
	ErrPoolTwice = errors.New("pool reference is in use")
	// ErrTooManyPools and ErrTooManyElements are wrapped when the peer lends more
	// on a data channel than was agreed.
	ErrTooManyPools    = errors.New("more pools than a channel can have")
	ErrTooManyElements = errors.New("more elements than a channel can have")
	// ErrTooManyFlushes is wrapped when the peer flushes again before it has the
	// reply to its last flush.
	ErrTooManyFlushes = errors.New("more unanswered flushes than agreed")
	// ErrReply is wrapped when the peer answers what nobody has asked.
	ErrReply = errors.New("reply to no request")
	// ErrKeyMessage is wrapped when the peer sends a key which no pool can be waiting
	// for.
	ErrKeyMessage = errors.New("message with a key for which there is no pool")
	// ErrInvalidated is wrapped when the peer invalidates a window whose pool is
	// not being flushed, or that is not its to invalidate.
	ErrInvalidated = errors.New("message that invalidates a key which is not to be invalidated")
)

// Config is what the pools of a session have to keep to.
type Config struct {
	Channels    int  // data channels
	MaxPools    int  // that this side lends on each
	PeerPools   int  // that the peer lends on each
	MaxElements int  // of the pools that the peer lends on a channel, in all
	KeptPools   int  // of those that the peer has taken back: remembered on a channel
	OneTouch    bool // keys are sent before a local pool is offered
	Invalidates bool // the peer invalidates the windows of local pools
	// KeySend says that a local pool that was asked for is offered before its window is
	// bound. The key is sent behind the bind, in the same post.
	KeySend bool
	// PeerOneTouch says that the peer tells the keys of a pool that it lends without one.
	PeerOneTouch bool
	// IdleTicks is after how many ticks without use a remote pool is given back
	// that came on request. A local one is taken back after twice as many.
	IdleTicks int
	// Pauses between requests for more pools: the shorter one while they are
	// granted, and otherwise longer and longer ones.
	PatienceMin, PatienceMax time.Duration
}

// Kind is what has happened.
type Kind uint8

// The events. Behind each is what it is about.
const (
	// Of local pools.
	Registered   Kind = iota // Local: it has memory and windows, which are not bound
	Failed                   // Local: it could not be made
	Adopted                  // Local: its receives are posted
	Bound                    // Local: its windows are bound
	KeysSent                 // Local: the peer knows its keys
	Drained                  // Local: what had come is taken, and the peer knows
	Unbound                  // Local: its windows are invalid, by this side's own request
	Invalidated              // Local: its window is invalid, by a message of the peer's
	Deregistered             // Local
	// Of remote pools.
	Lent     // Remote: the peer lends it
	Keyed    // Channel, Key: the peer has sent a pool's key
	Stopped  // Remote, Last: nothing of this side's is on its way to it
	Answered // the peer has handled the last Ask
	Needed   // Channel, Size, Now: a sender has no element for that many bytes
	// Of both.
	Get        // Channel, Size, Elements: the peer asks for a pool
	Flush      // Transaction, Refs: the peer asks for a flush
	Replying   // the reply to that is about to leave
	FlushReply // Transaction: the peer has answered
	Tick       // Tight: it is time to look for pools that are idle
	Ending     // this side ends the session in good order: all pools are to go
)

// Event is something that has happened, and what to.
type Event struct {
	Kind        Kind
	Local       *Local
	Remote      *Remote
	Last        bool   // of Stopped: as in the action
	Tight       bool   // pools that were lent on request are to go, whether used or not
	Channel     int    // 1 to Config.Channels
	Key         uint32 // of a window
	Size        int    // bytes
	Elements    int    // that the peer would like
	Transaction uint64 // of a flush
	Refs        []uint32
	Now         time.Time
}

// Do is what is to be done, and by whom.
type Do uint8

// The actions.
const (
	// By the receiver of the pool's channel.
	Adopt Do = iota // Local: post its receives; then Adopted
	Drain           // Local: take what has come, tell the peer, forget it; then Drained
	// By the sender of the pool's channel, which alone posts to its send queue.
	Bind       // Local: bind its windows; when they are, Bound
	BindSend   // Local: bind its window, and send the key behind it, in one post; nobody waits for that
	Unbind     // Local: invalidate them; when they are, Unbound
	Use        // Remote: it has credits
	Stop       // Remote, Last: stop using it; when nothing is on its way, Stopped. Last: then invalidate its window
	Invalidate // Remote: send the message that invalidates its window
	// By the pool manager, in their order.
	Make       // Local, Size, Elements: give it memory; then Registered, or Failed
	SendKeys   // Local: send the peer its keys; then KeysSent
	Offer      // Local
	Ask        // Channel, Size, Elements: ask for a pool; when the peer has handled that, Answered
	Request    // Ref, Transaction: ask for a flush
	Reply      // Transaction, Pools, Elements: answer the peer's flush, of remote pools that large; before, Replying
	Deregister // Local; then Deregistered
)

// Action is something to be done, and what to.
type Action struct {
	Do          Do
	Local       *Local
	Remote      *Remote
	Last        bool
	Channel     int
	Size        int // of the elements
	Elements    int
	Pools       int
	Ref         uint32 // with protocol.FlushGiveBack
	Transaction uint64
}

// Pools are the receive pools of a session: those that this side lends and those
// that the peer lends it. They hear what happens and say what is to be done, and do
// nothing themselves: they have no goroutine, lock or clock. Whoever calls Step
// sees to it that there is one call at a time, and that the actions of one call are
// handed on before those of the next. There is a method for each event, and not one type for
// the pools of each side, because a step of one often waits for the other's.
//
// # The life of a local pool
//
//	Get ─▶ made ──▶ adopted ──▶ bound ──▶ keys sent ──▶ offered
//	       Make     Adopt       Bind      SendKeys      Offer
//
// Pools without windows are not bound, and only those of one-touch windows
// have keys to be sent. With Config.KeySend a pool that was asked for is offered as
// soon as it is adopted, and bound meanwhile (BindSend): its key travels behind the bind on the
// pool's data channel, and keys in the order in which pools are offered. The first
// pools of a session are offered together: to a peer that knew the small ones alone,
// a large frame would seem to fit nowhere.
//
//	offered ──▶ flushing ──▶ draining ──▶ revoking ──▶ gone
//	            Request      Drain        Unbind       Deregister
//
// The peer gives a pool back by a flush of its own: then it is not flushing. A pool
// without windows is not revoking. If the peer invalidates its windows there is no
// Unbind: the peer's message is awaited, which may have come while it was flushing.
// The reply to the peer's flush comes when the pools without windows are
// deregistered, and before windows end: the peer invalidates a window when it has
// the reply.
//
// # The life of a remote pool
//
//	in use ──▶ stopping ──▶ given ──▶ closed
//	           Stop         Request
//
// The peer takes a pool back by a flush of its own, in any of these states: the pool
// is closed at once, and the reply leaves when it has stopped.
//
// A pool whose key follows (Remote.KeyFollows) is not used, and not stopped, before
// the key has come, on another channel than the offer: either may be first. So the
// reply to a flush says that the key has been taken, and its receive posted again.
//
// # Flushes
//
// At the end of a session in good order (Ending) all pools go by flushes of this
// side's, those that it lends and those that it uses, and it lends no others.
//
// One flush of each side's is out at a time. A local pool is taken back when the one
// before has been drained: the update that acknowledges what was indicated there has
// to be on its way before the next flush, whose reply says that it has been received.
type Pools struct {
	cfg    Config
	local  []*Local           // by reference
	remote map[uint32]*Remote // by reference, also when they are closed: see forget
	closed uint64             // remote pools that were closed

	unready int      // first pools that are not ready to be offered
	unsent  []*Local // to be offered when their keys are sent, one after the other: the first one's are on their way

	ownFlush  ownFlush
	peerFlush peerFlush
	asked     asked
	peerKeys  peerKeys
	keys      []keys // by channel

	ending bool

	count Counts
}

// ownFlush is this side's latest flush, and what the next one will be about.
type ownFlush struct {
	latest  uint64  // its transaction
	taking  *Local  // it is about this pool, or this pool is draining still
	giving  *Remote // to be given back when it has stopped, and no flush is out
	given   *Remote // the flush is about it
	awaited bool    // the flush is not answered
}

// asked is what this side has asked the peer for.
type asked struct {
	open     bool // an Ask may not be handled yet
	at       time.Time
	patience time.Duration
	lentThen uint64 // pools that the peer had lent when it was asked last
	sizes    []int  // by channel: of the elements that were asked for last
}

// peerFlush is a flush of the peer's.
type peerFlush struct {
	out         bool
	transaction uint64
	left        int // pools that are not done with
	pools       int // remote ones
	elements    int // of these
}

// Counts count pools.
type Counts struct {
	Asked    uint64 // requests for more
	Granted  uint64 // lent on the peer's request
	Refused  uint64 // requests of the peer's without success
	Returned uint64 // local ones that came back, and are deregistered
	Given    uint64 // remote ones that were given back
	Lent     uint64 // by the peer
}

// NewPools makes those of a session that has none yet.
func NewPools(cfg Config) *Pools {
	return &Pools{
		cfg: cfg, local: make([]*Local, cfg.Channels*cfg.MaxPools), remote: make(map[uint32]*Remote),
		asked: asked{patience: cfg.PatienceMin, sizes: make([]int, cfg.Channels)}, keys: make([]keys, cfg.Channels),
	}
}

// Count returns the counters.
func (p *Pools) Count() Counts { return p.count }

// Extra reports whether there are pools that came on request. Without any, a Tick changes
// nothing.
func (p *Pools) Extra() bool {
	for _, l := range p.local {
		if l != nil && l.Extra {
			return true
		}
	}
	for _, r := range p.remote {
		if r.extra && r.state == remoteInUse {
			return true
		}
	}
	return false
}

// Remote is the remote pool with a reference, or the latest that had it, which may
// be closed; nil if there is none.
func (p *Pools) Remote(ref uint32) *Remote { return p.remote[ref] }

// Remembered is how many elements the remote pools have that are known, closed or
// not.
func (p *Pools) Remembered() (elements int) {
	for _, r := range p.remote {
		elements += r.Len()
	}
	return elements
}

// AtRest reports what is under way, an error if anything is.
func (p *Pools) AtRest() error {
	for _, l := range p.local {
		if l != nil && l.state != localOffered {
			return fmt.Errorf("bufpool: local pool %d is in state %d", l.Ref, l.state)
		}
	}
	for _, r := range p.remote {
		if r.state != remoteInUse && r.state != remoteClosed {
			return fmt.Errorf("bufpool: remote pool %d is in state %d", r.Ref, r.state)
		}
	}
	for i, k := range p.keys {
		if len(k.waiting)+len(k.early) > 0 {
			return fmt.Errorf("bufpool: on channel %d %d pools wait for their keys, and %d keys for their pools", i+1,
				len(k.waiting), len(k.early))
		}
	}
	own := &p.ownFlush
	if p.unready > 0 || len(p.unsent) > 0 || own.taking != nil || own.giving != nil || own.awaited || p.peerFlush.out ||
		p.asked.open {
		return fmt.Errorf("bufpool: pools are under way: %d without their keys sent, flush awaited %t, to be answered %t, asking %t",
			len(p.unsent), own.awaited, p.peerFlush.out, p.asked.open)
	}
	return nil
}

// Gone reports whether there is no pool any more, and nothing under way.
func (p *Pools) Gone() bool {
	for _, l := range p.local {
		if l != nil {
			return false
		}
	}
	for _, r := range p.remote {
		if r.state != remoteClosed {
			return false
		}
	}
	return !p.ownFlush.awaited && !p.peerFlush.out && p.ownFlush.taking == nil && p.ownFlush.giving == nil
}

// First makes a newLocal for one of the first pools of a channel, or returns nil if
// there is none.
func (p *Pools) First(channel int) *Local {
	l := p.newLocal(channel)
	if l != nil {
		p.unready++
	}
	return l
}

// newLocal makes one for another pool of a channel. A receiver finds the pool of an
// indication by its difference to the channel's first reference.
func (p *Pools) newLocal(channel int) *Local {
	first := (channel - 1) * p.cfg.MaxPools
	for ref := first; ref < first+p.cfg.MaxPools; ref++ {
		if p.local[ref] == nil {
			p.local[ref] = &Local{Ref: uint32(ref), Channel: channel}
			return p.local[ref]
		}
	}
	return nil
}

// request asks the peer to stop using a local pool, or to take back one of its own.
func (p *Pools) request(ref uint32, out []Action) []Action {
	p.ownFlush.latest++
	p.ownFlush.awaited = true
	return append(out, Action{Do: Request, Ref: ref, Transaction: p.ownFlush.latest})
}

// done is when another pool of the peer's flush is done with.
func (p *Pools) done(out []Action) []Action {
	if p.peerFlush.left--; p.peerFlush.left > 0 {
		return out
	}
	o := &p.peerFlush
	return append(out, Action{Do: Reply, Transaction: o.transaction, Pools: o.pools, Elements: o.elements})
}

// keys match the keys that the peer sends on a data channel with the pools that wait
// for them, in order: one of the two is empty.
type keys struct {
	early   []uint32  // of pools that are not lent yet
	waiting []*Remote // whose keys have not come
}
