package cards

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/splitnic/splitnic/protocol"
)

// Maker makes cards. Its methods are called from several goroutines, but for one name
// from one at a time.
type Maker interface {
	// Open makes a card, or takes over what the last process has left of it.
	Open(spec *Spec) (Card, error)
	// Forget removes what is left of a card that is not open, or no longer.
	Forget(spec *Spec) error
}

// Card is a card that is there.
type Card interface {
	// Run keeps the card working until ctx is done, when it returns nil, or the card is
	// of no use any more, as when somebody has deleted the netdevice.
	Run(ctx context.Context) error
	// Close ends a card that is not running. The netdevice is left to the next process if
	// that is possible, or with remove removed.
	Close(remove bool) error
	// Status may be called at any time.
	Status() Status
}

// State says how far a card has got.
type State string

// The states.
const (
	Connecting State = "connecting" // to an I/O unit
	Connected  State = "connected"
	Failed     State = "failed" // there is no netdevice; it is tried again
)

// Status is what API v1 says of a card besides its Spec.
type Status struct {
	State State     `json:"state" jsonschema:"enum=connecting,enum=connected,enum=failed"`
	Since time.Time `json:"since"` // of the state
	// Error is why the card is not connected, or was not in the last attempt.
	Error string `json:"error,omitempty"`
	// Permanent: nothing will connect it until somebody has changed something.
	Permanent   bool   `json:"permanent,omitempty" jsonschema:"description=trying again does not help"`
	HostName    string `json:"host_name,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty" jsonschema:"description=of the card's key"`
	IOUnit      string `json:"iounit,omitempty" jsonschema:"description=name or address"`
	MAC         string `json:"mac,omitempty"`
	MTU         int    `json:"mtu,omitempty"`
	Carrier     bool   `json:"carrier"`
	// VLANs are those whose frames the I/O unit sends; nil: it has not said. The devices on
	// the netdevice ask for them.
	VLANs *protocol.VLANSet `json:"vlans,omitempty" jsonschema:"type=string,description=whose frames the I/O unit sends"`
	// Refused is the last setting of the netdevice that was refused, nil if none was or one
	// of its kind has been granted since.
	Refused *Refusal `json:"refused,omitempty"`
	Socket  string   `json:"socket,omitempty" jsonschema:"description=status socket of the card"`
}

// Refusal is a setting that the I/O unit, or the netdevice, does not have.
type Refusal struct {
	What   string `json:"what"`
	Wanted string `json:"wanted"`
	Reason string `json:"reason"`
}

// Info is a card of API v1.
type Info struct {
	Spec   Spec   `json:"spec"`
	Status Status `json:"status"`
}

// pauses are how long a card that has failed waits until it is made again: first, and
// twice as long each time up to most.
type pauses struct{ first, most time.Duration }

// entry keeps a card going.
type entry struct {
	spec   Spec
	maker  Maker
	pauses pauses
	log    *slog.Logger
	space  space // that the card was made in
	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned

	mu    sync.Mutex
	card  Card // nil: it has failed
	err   error
	since time.Time // of err
}

// start keeps the card going, which is open unless it is nil, because of err.
func (e *entry) start(card Card, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel, e.done = cancel, make(chan struct{})
	e.set(card, err)
	go func() {
		defer close(e.done)
		e.run(ctx)
	}()
}

// set notes whether the card is there.
func (e *entry) set(card Card, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.card, e.err, e.since = card, err, time.Now()
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
			card, err := e.maker.Open(&e.spec)
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

// stop ends the card, and with remove removes it.
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
	return err
}

// info is what API v1 says.
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
