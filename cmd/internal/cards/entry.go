package cards

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/splitnic/splitnic/protocol"
)

// Maker makes cards. Several goroutines call its methods, but only one at a time for the same
// name.
type Maker interface {
	// Open makes a card, or adopts what the last process has left of it.
	Open(spec *Spec) (Card, error)
	// Forget removes what is left of a card that is not open, or not any more.
	Forget(spec *Spec) error
}

// Card is an open card.
type Card interface {
	// Run runs the card until ctx is done, and then returns nil. It returns an error when the
	// card cannot be used any more, for example because its netdevice was deleted.
	Run(ctx context.Context) error
	// Close closes a card that is not running. If remove is set, it removes the netdevice.
	// Otherwise it leaves the netdevice to the next process, if possible.
	Close(remove bool) error
	// Status returns the status. Any goroutine may call it at any time.
	Status() Status
}

// State is the state of a card.
type State string

// The values of State.
const (
	Connecting State = "connecting" // to an I/O unit
	Connected  State = "connected"
	Failed     State = "failed" // there is no netdevice; the card will be made again
)

// Status is what API v1 returns about a card in addition to its Spec.
type Status struct {
	State State     `json:"state" jsonschema:"enum=connecting,enum=connected,enum=failed"`
	Since time.Time `json:"since"` // beginning of the state
	// Error is the reason why the card is not connected, or why the last attempt failed.
	Error string `json:"error,omitempty"`
	// Permanent is true if the card cannot connect before an administrator changes something.
	Permanent   bool   `json:"permanent,omitempty" jsonschema:"description=trying again does not help"`
	HostName    string `json:"host_name,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty" jsonschema:"description=of the card's key"`
	IOUnit      string `json:"iounit,omitempty" jsonschema:"description=name or address"`
	MAC         string `json:"mac,omitempty"`
	MTU         int    `json:"mtu,omitempty"`
	Carrier     bool   `json:"carrier"`
	// VLANs has the VLANs whose frames the I/O unit sends; nil if the I/O unit has not told.
	// VLAN devices on the netdevice request them.
	VLANs *protocol.VLANSet `json:"vlans,omitempty" jsonschema:"type=string,description=whose frames the I/O unit sends"`
	// Refused is the last setting of the netdevice that was refused. It is nil if none was
	// refused, or if a setting of the same kind was granted later.
	Refused *Refusal `json:"refused,omitempty"`
	Socket  string   `json:"socket,omitempty" jsonschema:"description=status socket of the card"`
}

// Refusal is a setting that the I/O unit or the netdevice has refused.
type Refusal struct {
	What   string `json:"what"`
	Wanted string `json:"wanted"`
	Reason string `json:"reason"`
}

// Info is a card in API v1.
type Info struct {
	Spec   Spec   `json:"spec"`
	Status Status `json:"status"`
}

// pauses has the waiting times before a failed card is made again: first at the beginning, then
// twice as long each time, up to most.
type pauses struct{ first, most time.Duration }

// entry runs a card, and makes it again when it has failed.
type entry struct {
	spec   Spec
	maker  Maker
	pauses pauses
	log    *slog.Logger
	space  *heldSpace // of a transient card, in which it was made; nil if unknown
	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned

	mu    sync.Mutex
	card  Card // nil if the card has failed
	err   error
	since time.Time // time of the last change of card or err
}

// start runs the card in a goroutine. card is open; it is nil if it could not be made because
// of err.
func (e *entry) start(card Card, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel, e.done = cancel, make(chan struct{})
	e.set(card, err)
	go func() {
		defer close(e.done)
		e.run(ctx)
	}()
}

func (e *entry) set(card Card, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.card, e.err, e.since = card, err, time.Now()
}

// errElsewhere is returned for a transient card whose path has another network namespace, which
// must not get the card.
var errElsewhere = &FieldError{"netns", "the network namespace in which the card was requested is gone"}

// open makes the card, unless that would be in another network namespace.
func (e *entry) open() (Card, error) {
	elsewhere := func() bool {
		if !e.spec.Transient {
			return false
		}
		is, err := e.space.isAt(e.spec.NetNS)
		return err == nil && !is
	}
	if elsewhere() {
		return nil, errElsewhere
	}
	card, err := e.maker.Open(&e.spec)
	if err == nil && elsewhere() { // The path may have changed in between. The card has not run yet.
		return nil, errors.Join(errElsewhere, card.Close(true))
	}
	return card, err
}

// run runs the card until ctx is done, and makes it again when it has failed.
func (e *entry) run(ctx context.Context) {
	pause := e.pauses.first
	for ctx.Err() == nil {
		if e.card == nil {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			pause = min(2*pause, e.pauses.most)
			card, err := e.open()
			e.set(card, err)
			if err != nil {
				e.log.Debug("card", "card", e.spec.Name, "error", err)
				continue
			}
			e.log.Info("the card is there again", "card", e.spec.Name)
		}
		began := time.Now()
		err := e.card.Run(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > e.pauses.most {
			pause = e.pauses.first
		}
		e.log.Warn("the card has failed", "card", e.spec.Name, "error", err)
		if closeErr := e.card.Close(true); closeErr != nil {
			e.log.Warn("what is left of the card", "card", e.spec.Name, "error", closeErr)
		}
		e.set(nil, err)
	}
}

// stop ends the card, and removes it if remove is set.
func (e *entry) stop(remove bool) error {
	e.cancel()
	<-e.done
	e.mu.Lock()
	card := e.card
	e.card = nil
	e.mu.Unlock()
	var err error
	if card != nil {
		err = card.Close(remove)
	}
	if remove {
		err = errors.Join(err, e.maker.Forget(&e.spec))
	}
	e.space.release()
	return err
}

func (e *entry) info() Info {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := Info{Spec: e.spec}
	switch {
	case e.card != nil:
		i.Status = e.card.Status()
	case e.err != nil:
		i.Status = Status{State: Failed, Since: e.since, Error: e.err.Error()}
	}
	return i
}
