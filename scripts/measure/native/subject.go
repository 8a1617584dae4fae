package native

import (
	"slices"
)

// What a subject is.
const (
	splitnic = "splitnic"
	relay    = "relay"
	veth     = "veth"
	bridge   = "bridge"
)

// subject is something that takes frames from a host to a LAN and back.
type subject struct {
	what  string // splitnic, relay, veth or bridge
	port  string // kind of port on the LAN: macvtap, packet or tap; empty for those that need none
	plain bool   // without offloads
}

// String is the subject's name in tables and in JSON.
func (s subject) String() string {
	name := s.what
	if s.port != "" {
		name += "/" + s.port
	}
	if s.plain {
		name += "/no-offloads"
	}
	return name
}

// process reports whether frames pass through a process of the subject's own.
func (s subject) process() bool { return s.port != "" }

// yardstick is the subject that s is compared to.
func (s subject) yardstick() subject { return subject{what: relay, port: s.port} }

// full reports whether every measurement is made of s: of the others only the
// rough ones, so that the whole run takes a few minutes.
func (s subject) full() bool { return s.port != "packet" && s.port != "tap" && !s.plain }

// subjects are all there are, in the order they are measured in a round. Those
// that are compared to each other follow each other.
func subjects() []subject {
	return []subject{
		{what: splitnic, port: "macvtap"}, {what: relay, port: "macvtap"},
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
