package native

import (
	"slices"
)

// The kinds of subjects.
const (
	splitnic = "splitnic"
	relay    = "relay"
	veth     = "veth"
	bridge   = "bridge"
)

// subject is a way to carry frames between a host and a LAN.
type subject struct {
	what  string // splitnic, relay, veth or bridge
	port  string // kind of port on the LAN: macvtap, packet or tap; empty if there is none
	plain bool   // without offloads
}

// String returns the subject's name in tables and in JSON.
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

// process reports whether the subject has a separate process, through which frames pass.
func (s subject) process() bool { return s.port != "" }

// yardstick returns the subject to which s is compared.
func (s subject) yardstick() subject { return subject{what: relay, port: s.port} }

// full reports whether every measurement is made of s. Only the rough measurements are made of
// other subjects, so that the whole run takes a few minutes.
func (s subject) full() bool { return s.port != "packet" && s.port != "tap" && !s.plain }

// subjects returns all subjects, in the order in which a round measures them. Subjects that
// are compared to each other follow each other.
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
