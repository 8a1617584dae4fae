package host

import (
	"context"
	"time"

	"github.com/splitnic/splitnic/splitdrv/host/uplink"
)

// pause is a pause between two rounds of all I/O units. An I/O unit can make it long, by the
// time for which it says that it refuses sessions. What may help at once ends it: another
// list of I/O units, a reload of keys and trust, a command.
type pause struct {
	relisted <-chan struct{} // closed when the list of I/O units has changed
	reloaded <-chan struct{} // closed when keys and trust have changed
	commands <-chan string   // the I/O unit with which to begin, or uplink.None
}

// wait returns after the given time, when the pause has been ended, or when ctx is done. It
// returns the I/O unit with which a command wants to begin, or uplink.None.
func (p *pause) wait(ctx context.Context, d time.Duration) (first string) {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
	case <-p.relisted:
	case <-p.reloaded:
	case first = <-p.commands:
		return first
	case <-ctx.Done():
	}
	return uplink.None
}

// tryNow ends the pause, or the next one if there is none, so that the I/O units are tried at
// once, beginning with the one at addr unless that is uplink.None.
func (h *Host) tryNow(addr string) error {
	if addr != uplink.None {
		units, _, _ := h.units.Units()
		if _, err := units.Choose(addr, uplink.None); err != nil {
			return err
		}
	}
	select {
	case h.commands <- addr:
	default: // another command has ended it
	}
	return ErrNoSession
}

// forgetCommand forgets a command that has not ended a pause.
func (h *Host) forgetCommand() {
	select {
	case <-h.commands:
	default:
	}
}
