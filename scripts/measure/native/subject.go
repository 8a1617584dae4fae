package native

import "slices"

// subject is a way to carry frames between a host and a LAN.
type subject struct {
	what  string // splitnic, relay, veth, bridge or one of networks
	port  string // kind of port on the LAN: macvtap, packet or tap; empty if there is none
	plain bool   // without offloads
	// encrypted says that frames are encrypted on the fabric.
	encrypted bool
}

// String returns the subject's name in tables and in JSON.
func (s subject) String() string {
	name := s.what
	if s.port != "" {
		name += "/" + s.port
	}
	if s.plain {
		name += plainSuffix
	}
	if s.encrypted {
		name += encryptedSuffix
	}
	return name
}

const (
	plainSuffix     = "/no-offloads"
	encryptedSuffix = "/encrypted"
)

// process reports whether the subject has separate processes, through which frames pass.
func (s subject) process() bool { return s.port != "" || s.what == wireguardGo }

// shares returns the number of endpoints in the processes of the subject. The relay counts as one.
func (s subject) shares() float64 {
	if s.what == splitnic || s.what == wireguardGo {
		return 2
	}
	return 1
}

// copies returns how often the fabric in memory copies a frame, in the place of adapters.
func (s subject) copies() float64 {
	if s.what == splitnic {
		return 1
	}
	return 0
}

// full reports whether every measurement is made of s. Only the rough measurements are made of
// other subjects, so that the whole run takes a few minutes.
func (s subject) full() bool {
	return s.port != "packet" && s.port != "tap" && !s.plain && !s.network()
}

// network reports whether s is one of networks.
func (s subject) network() bool {
	_, ok := networks[s.what]
	return ok
}

// subjects returns all subjects, in the order in which a round measures them. Subjects that
// are compared to each other follow each other.
func subjects() []subject {
	return []subject{
		{what: splitnic, port: "macvtap"}, {what: splitnic, port: "macvtap", encrypted: true},
		{what: wireguard}, {what: wireguardGo}, {what: ipsec}, {what: macsec},
		{what: relay, port: "macvtap"},
		{what: splitnic, port: "packet"}, {what: relay, port: "packet"},
		{what: splitnic, port: "tap"}, {what: relay, port: "tap"},
		{what: splitnic, port: "macvtap", plain: true},
		{what: veth}, {what: bridge},
	}
}

func parseSubject(name string) (subject, bool) {
	all := subjects()
	i := slices.IndexFunc(all, func(s subject) bool { return s.String() == name })
	if i < 0 {
		return subject{}, false
	}
	return all[i], true
}
