package messaging

import (
	"errors"
	"fmt"
	"strings"

	"github.com/splitnic/splitnic/fabric"
)

// Protection says what bounds a peer to the pools that this side lends it, on
// top of a protection domain for each peer.
type Protection string

// The protections, each tighter than the one before.
const (
	// ProtectRegion is a memory region for each pool, remote write only.
	ProtectRegion Protection = "region"
	// ProtectWindow is a type-2 memory window around each pool: its key is good
	// on the pool's data channel alone, and void when the pool's flush is over.
	ProtectWindow Protection = "window"
	// ProtectOneTouch is such a window around each element, invalidated before
	// anybody looks at what the peer has written there, and bound again before the
	// element is lent again.
	ProtectOneTouch Protection = "one-touch"
)

// Protections are all of them.
func Protections() []Protection {
	return []Protection{ProtectRegion, ProtectWindow, ProtectOneTouch}
}

// ParseProtection is the protection of that name.
func ParseProtection(s string) (Protection, error) {
	var names []string
	for _, p := range Protections() {
		if s == string(p) {
			return p, nil
		}
		names = append(names, string(p))
	}
	return "", fmt.Errorf("protection %q, must be one of %s", s, strings.Join(names, ", "))
}

// Description says in words what the protection is.
func (p Protection) Description() string {
	switch p {
	case ProtectWindow:
		return "a protection domain per peer and a memory region per pool, each behind a memory window on the one data channel that may use it, remote write only"
	case ProtectOneTouch:
		return "a protection domain per peer and a memory window per element, invalidated before what was written is looked at, remote write only"
	default:
		return "a protection domain per peer and a memory region per pool, remote write only"
	}
}

// Protecting is the protection that is in force, and why it is that one.
type Protecting struct {
	Name Protection `json:"name"`
	Why  string     `json:"why"`
}

// ProtectionOn is the protection of pools that are lent through a device with
// these limits in a mode that writes. asked is what the user wants, or empty
// for what is best there. A device that cannot do what is asked is an error
// that wraps fabric.ErrUnsupported.
func ProtectionOn(asked Protection, l fabric.Limits) (Protecting, error) {
	switch {
	case asked == ProtectRegion:
		return Protecting{ProtectRegion, "as configured"}, nil
	case asked != "" && !l.Windows:
		return Protecting{}, fmt.Errorf("protection %s: no type-2 memory windows; use protection %s: %w", asked,
			ProtectRegion, fabric.ErrUnsupported)
	case asked == ProtectWindow && !l.WindowBounds:
		return Protecting{ProtectWindow, "as configured; the device does not enforce the bounds of windows, those of the regions behind them count"}, nil
	case asked == ProtectOneTouch && !l.WindowBounds:
		return Protecting{ProtectOneTouch, "as configured; the device does not enforce the bounds of windows, so each element has a region of its own"}, nil
	case asked != "":
		return Protecting{asked, "as configured"}, nil
	case !l.Windows:
		return Protecting{ProtectRegion, "the device has no type-2 memory windows"}, nil
	case !l.WindowBounds:
		return Protecting{ProtectRegion, "the device does not enforce the bounds of windows"}, nil
	default:
		return Protecting{ProtectWindow, "the device enforces the bounds of windows"}, nil
	}
}

// ErrOneTouch is wrapped by New's error when this side is to lend one-touch
// pools to a peer that does not know how to use them.
var ErrOneTouch = errors.New("the peer is of a version without one-touch pools; update it, or use another --protection here")
