package session

import (
	"slices"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session/internal/identity"
	"github.com/splitnic/splitnic/vnet"
)

const (
	// DefaultPort is the TCP port of an I/O unit.
	DefaultPort = 7580
	// MaxQueues is the largest number of data channels of a session.
	MaxQueues = 255
	// MaxPools is the largest number of pools that one side lends on a data channel at a
	// time.
	MaxPools = protocol.MaxChannelPools
	// MaxControlReceives is the largest number of control receives in a message. No session
	// needs as many.
	MaxControlReceives = 1 << 17

	magic       = "splitnic"
	maxFeatures = 64
	maxModes    = 8
	maxCiphers  = 8
)

// Hello has the requests of the host.
type Hello struct {
	Features []string `json:"features"` // optional features that the host supports
	Name     string   `json:"name"`     // name of the host; not authenticated
	Software string   `json:"software"` // version, for display
	// transfer modes in order of preference; the I/O unit may not know them all
	Modes  []protocol.Mode `json:"modes"`
	Queues int             `json:"queues"` // requested data channels, 1 … MaxQueues
	// most pools that the host lends on a data channel at a time, 1 … MaxPools; see PoolsIn
	Pools    int           `json:"pools"`
	MaxMTU   int           `json:"max_mtu"`      // largest MTU that the host supports
	Offloads vnet.Offloads `json:"offloads"`     // offloads that the host supports
	MAC      protocol.MAC  `json:"mac,omitzero"` // requested address; zero: the I/O unit chooses
	// Ciphers with which the host can encrypt, in order of preference; none if it does not want to.
	Ciphers []seal.Cipher `json:"ciphers,omitempty"`
	Encrypt bool          `json:"encrypt,omitempty"` // the host requires encryption
	// Run identifies the run of the host's process; Client.Hello sets it. It is zero if the
	// host has no platform identifier.
	Run protocol.Run `json:"run,omitzero"`
}

// PoolsIn returns the largest number of pools that the host lends on a data channel at a time
// in a transfer mode: Pools, or one in the send modes.
func (h *Hello) PoolsIn(mode protocol.Mode) int { return min(h.Pools, mode.MaxPools()) }

// Offers reports whether the host supports an optional feature.
func (h *Hello) Offers(feature string) bool { return slices.Contains(h.Features, feature) }

func (h *Hello) validate() error {
	switch {
	case !ValidName(h.Name):
		return invalid("name", h.Name, "must be 1 to %d letters, digits, '.', '_' or '-'", identity.MaxNameLength)
	case len(h.Software) > maxText || text(h.Software) != h.Software:
		return invalid("software", h.Software, "must be at most %d printable characters", maxText)
	case len(h.Modes) == 0 || len(h.Modes) > maxModes:
		return invalid("modes", len(h.Modes), "must be 1 to %d", maxModes)
	case h.Queues < 1 || h.Queues > MaxQueues:
		return invalid("queues", h.Queues, "must be 1 to %d", MaxQueues)
	case h.MaxMTU < protocol.MinMTU || h.MaxMTU > protocol.MaxMTU:
		return invalid("max_mtu", h.MaxMTU, "must be %d to %d", protocol.MinMTU, protocol.MaxMTU)
	}
	for i, m := range h.Modes {
		if !identity.ValidWord(string(m)) {
			return invalid("modes", m, "must be words")
		}
		if slices.Contains(h.Modes[:i], m) {
			return invalid("modes", m, "is there twice")
		}
	}
	if len(h.Ciphers) > maxCiphers {
		return invalid("ciphers", len(h.Ciphers), "must be at most %d", maxCiphers)
	}
	for _, c := range h.Ciphers {
		if !identity.ValidWord(string(c)) {
			return invalid("ciphers", c, "must be words")
		}
	}
	if h.Encrypt && len(h.Ciphers) == 0 {
		return invalid("encrypt", h.Encrypt, "must not be there without ciphers")
	}
	if h.Pools < 1 || h.Pools > MaxPools {
		return invalid("pools", h.Pools, "must be 1 to %d", MaxPools)
	}
	return validateFeatures(h.Features)
}

// Link is the state of the I/O unit's LAN link.
type Link struct {
	Up        bool   `json:"up"`
	SpeedMbps uint32 `json:"speed_mbps"` // 0: unknown
}

// Welcome has what the I/O unit grants.
type Welcome struct {
	Version  int           `json:"version"`  // protocol version; set by Server.Welcome
	Features []string      `json:"features"` // only those that the host supports are sent
	Session  string        `json:"session"`  // identifier for logs; Server.Welcome sets it if it is empty
	Name     string        `json:"name"`     // name of the I/O unit; not authenticated
	Software string        `json:"software"`
	Mode     protocol.Mode `json:"mode"`   // one of those in the hello
	Queues   int           `json:"queues"` // data channels, 1 … number in the hello
	// most pools that the I/O unit lends on a data channel at a time
	Pools           int           `json:"pools"`
	MAC             protocol.MAC  `json:"mac"`              // of the host's netdevice
	MTU             int           `json:"mtu"`              // of the host's netdevice, at most that in the hello
	Link            Link          `json:"link"`             // of the LAN
	Offloads        vnet.Offloads `json:"offloads"`         // only those that the host supports are sent
	ControlReceives int           `json:"control_receives"` // posted by the I/O unit: see protocol.ControlReceives
	Channels        []Channel     `json:"channels"`         // 0: control channel, 1 … Queues: data channels
	Cipher          seal.Cipher   `json:"cipher,omitempty"` // one of those in the hello; "": nothing is encrypted
	// Platform is the identifier of the host, and Run identifies the run of the I/O unit's
	// process. Server.Welcome sets both if the hello has a Run, and otherwise neither.
	Platform protocol.Platform `json:"platform,omitzero"`
	Run      protocol.Run      `json:"run,omitzero"`
}

// Grants reports whether an optional feature is used.
func (w *Welcome) Grants(feature string) bool { return slices.Contains(w.Features, feature) }

// validate checks a welcome as the answer to hello.
func (w *Welcome) validate(hello *Hello) error {
	switch {
	case !identity.ValidWord(w.Session):
		return invalid("session", w.Session, "must be a word")
	case !ValidName(w.Name):
		return invalid("name", w.Name, "must be 1 to %d letters, digits, '.', '_' or '-'", identity.MaxNameLength)
	case len(w.Software) > maxText || text(w.Software) != w.Software:
		return invalid("software", w.Software, "must be at most %d printable characters", maxText)
	case !w.Mode.Known() || !slices.Contains(hello.Modes, w.Mode):
		return invalid("mode", w.Mode, "must be one of %q as in the hello", hello.Modes)
	case w.Queues < 1 || w.Queues > hello.Queues:
		return invalid("queues", w.Queues, "must be 1 to %d as in the hello", hello.Queues)
	case !w.MAC.Valid():
		return invalid("mac", w.MAC, "must be a unicast address")
	case w.MTU < protocol.MinMTU || w.MTU > hello.MaxMTU:
		return invalid("mtu", w.MTU, "must be %d to %d as in the hello", protocol.MinMTU, hello.MaxMTU)
	case w.Offloads&^hello.Offloads != 0:
		return invalid("offloads", w.Offloads, "must be some of %v as in the hello", hello.Offloads)
	}
	if w.Cipher != "" && !slices.Contains(hello.Ciphers, w.Cipher) {
		return invalid("cipher", w.Cipher, "must be one of %q as in the hello", hello.Ciphers)
	}
	if w.Cipher != "" && w.Grants(protocol.FeatureKeySend) {
		return invalid("features", protocol.FeatureKeySend, "must not be there with encryption")
	}
	if most := w.Mode.MaxPools(); w.Pools < 1 || w.Pools > most {
		return invalid("pools", w.Pools, "must be 1 to %d in mode %s", most, w.Mode)
	}
	if err := validateFeatures(w.Features); err != nil {
		return err
	}
	for _, f := range w.Features {
		if !slices.Contains(hello.Features, f) {
			return invalid("features", f, "is not in the hello")
		}
	}
	switch zero := (protocol.Run{}); {
	case (w.Platform == 0) != (w.Run == zero):
		return invalid("platform", w.Platform, "must come together with the I/O unit's run")
	case w.Platform != 0 && hello.Run == zero:
		return invalid("platform", w.Platform, "must not be there, as the hello has no run")
	}
	if w.Grants(protocol.FeatureLatencyQueue) && w.Queues < 2 {
		return invalid("queues", w.Queues, "must be at least 2 with a latency channel")
	}
	if err := validateControlReceives(w.ControlReceives, w.Mode, w.Queues, hello.PoolsIn(w.Mode)); err != nil {
		return err
	}
	return validateChannels(w.Channels, w.Queues)
}

// Accept has the addresses of the host's queue pairs.
type Accept struct {
	ControlReceives int       `json:"control_receives"` // posted by the host: see protocol.ControlReceives
	Channels        []Channel `json:"channels"`         // 0: control channel, 1 … Welcome.Queues: data channels
}

// validate checks an accept as the answer to welcome.
func (a *Accept) validate(welcome *Welcome) error {
	if err := validateControlReceives(a.ControlReceives, welcome.Mode, welcome.Queues, welcome.Pools); err != nil {
		return err
	}
	return validateChannels(a.Channels, welcome.Queues)
}

type helloMessage struct {
	Type     string   `json:"type"`
	Magic    string   `json:"magic"`
	Versions Versions `json:"versions"`
	Hello
}

type welcomeMessage struct {
	Type string `json:"type"`
	Welcome
}

type acceptMessage struct {
	Type string `json:"type"`
	Accept
}

// decodeHello decodes and checks a hello. It checks the version first, because a hello of
// another version may have other fields.
func decodeHello(b []byte) (Hello, error) {
	first, err := decode[struct {
		Magic    string   `json:"magic"`
		Versions Versions `json:"versions"`
	}](b)
	if err != nil {
		return Hello{}, err
	}
	if first.Magic != magic {
		return Hello{}, invalid("magic", first.Magic, "must be %q", magic)
	}
	if v := first.Versions; v.Min < 1 || v.Max < v.Min {
		return Hello{}, invalid("versions", v, "must be a range of positive numbers")
	}
	if first.Versions.Min > spoken.Max || first.Versions.Max < spoken.Min {
		return Hello{}, &VersionError{Local: spoken, Remote: first.Versions}
	}
	h, err := decode[Hello](b)
	if err != nil {
		return Hello{}, err
	}
	return h, h.validate()
}

func decodeWelcome(b []byte, hello *Hello) (Welcome, error) {
	first, err := decode[struct {
		Version int `json:"version"`
	}](b)
	if err != nil {
		return Welcome{}, err
	}
	if v := first.Version; v < spoken.Min || v > spoken.Max {
		return Welcome{}, &VersionError{Local: spoken, Remote: Versions{v, v}}
	}
	w, err := decode[Welcome](b)
	if err != nil {
		return Welcome{}, err
	}
	return w, w.validate(hello)
}

func decodeAccept(b []byte, welcome *Welcome) (Accept, error) {
	a, err := decode[Accept](b)
	if err != nil {
		return Accept{}, err
	}
	return a, a.validate(welcome)
}

// validateControlReceives checks the number of control receives of a side whose peer lends
// pools pools on each data channel.
func validateControlReceives(n int, mode protocol.Mode, queues, pools int) error {
	if least := protocol.ControlReceives(mode, queues, pools); n < least || n > MaxControlReceives {
		return invalid("control_receives", n, "must be %d to %d for %d data channels with %d pools in mode %s", least,
			MaxControlReceives, queues, pools, mode)
	}
	return nil
}

func validateFeatures(features []string) error {
	if len(features) > maxFeatures {
		return invalid("features", len(features), "must be at most %d", maxFeatures)
	}
	for _, f := range features {
		if !identity.ValidWord(f) {
			return invalid("features", f, "must be words")
		}
	}
	return nil
}

// drainMessage is sent by the I/O unit: it asks the host to move to another I/O unit, or
// revokes that.
type drainMessage struct {
	Type string `json:"type"`
	On   bool   `json:"on"`
}

// staysMessage is sent by the host: it was asked to move, and cannot for now.
type staysMessage struct {
	Type   string `json:"type"`
	Reason string `json:"reason"` // for display
}

func decodeDrain(b []byte) (on bool, err error) {
	m, err := decode[drainMessage](b)
	return m.On, err
}

func decodeStays(b []byte) (reason string, err error) {
	m, err := decode[staysMessage](b)
	return text(m.Reason), err
}

// The limit for messages drain and stays that are read: at once, and per second in the long
// run. Further messages wait at the sender.
const (
	drainBurst = 16
	drainRate  = 1
)
