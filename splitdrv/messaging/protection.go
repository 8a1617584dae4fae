package messaging

import (
	"errors"
	"fmt"
	"strings"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
)

// Protection is how the access of a peer is limited to the pools that it is lent, in
// addition to a protection domain for each peer.
type Protection string

// The protections, each stricter than the one before.
const (
	// ProtectRegion is a memory region for each pool, remote write only.
	ProtectRegion Protection = "region"
	// ProtectWindow is a type-2 memory window around each pool. Its key is valid only on
	// the pool's data channel, and only until the pool is flushed.
	ProtectWindow Protection = "window"
	// ProtectOneTouch is a type-2 memory window around each element. The window is
	// invalidated before the receiver reads what the peer has written, and bound again
	// before the element is lent again.
	ProtectOneTouch Protection = "one-touch"
)

// Protections returns all protections.
func Protections() []Protection {
	return []Protection{ProtectRegion, ProtectWindow, ProtectOneTouch}
}

// ParseProtection returns the protection with a name.
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

// Description describes the protection in words, for the status.
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

// ProtectionInForce is a protection and the reason for it.
type ProtectionInForce struct {
	Name Protection `json:"name"`
	Why  string     `json:"why"`
}

// ChooseProtection chooses the protection of pools that are lent through a device whose memory windows
// are w, in the modes that write. asked is the configured protection, or empty for the best one
// that the device supports. If the device does not support asked, the error wraps
// fabric.ErrUnsupported.
func ChooseProtection(asked Protection, w conform.Windows) (ProtectionInForce, error) {
	none, loose := "the device has no type-2 memory windows", "the device does not enforce the bounds of windows"
	if w.Why != "" {
		none = "the device claims type-2 memory windows, and they do not work: " + w.Why
		loose = "the device claims type-2 memory windows, and nothing shows that it enforces their bounds: " + w.Why
	}
	switch {
	case asked == ProtectRegion:
		return ProtectionInForce{ProtectRegion, "as configured"}, nil
	case asked != "" && !w.Work:
		return ProtectionInForce{}, fmt.Errorf("protection %s: %s; use protection %s: %w", asked, none, ProtectRegion,
			fabric.ErrUnsupported)
	case asked == ProtectWindow && !w.Bounds:
		return ProtectionInForce{ProtectWindow, "as configured; " + loose + ", those of the regions behind them count"}, nil
	case asked == ProtectOneTouch && !w.Bounds:
		why := "as configured; " + loose + ", so each element has a region of its own"
		return ProtectionInForce{ProtectOneTouch, why}, nil
	case asked != "":
		return ProtectionInForce{asked, "as configured"}, nil
	case !w.Work:
		return ProtectionInForce{ProtectRegion, none}, nil
	case !w.Bounds:
		return ProtectionInForce{ProtectRegion, loose}, nil
	default:
		return ProtectionInForce{ProtectWindow, "the device enforces the bounds of windows"}, nil
	}
}

// ErrOneTouch is wrapped by the error of New if this side is configured to lend one-touch
// pools and the peer does not support them.
var ErrOneTouch = errors.New("the peer is of a version without one-touch pools; update it, or use another --protection here")
