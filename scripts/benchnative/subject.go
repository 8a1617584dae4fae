package main

import (
	"slices"
	"strings"
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

// selection says what to measure: BENCH_ONLY, a list of terms separated by
// commas, each a part of a subject's name, of a measurement's, or
// SUBJECT:MEASUREMENT. The empty one is everything
// but what has to be asked for.
type selection []string

func parseSelection(s string) selection {
	return slices.DeleteFunc(strings.Split(s, ","), func(t string) bool { return strings.TrimSpace(t) == "" })
}

// wants reports whether m is to be made of a subject.
func (sel selection) wants(subject string, m *measurement) bool {
	return (len(sel) > 0 || !m.asked) && sel.has(subject, m.name)
}

// has reports whether a measurement of a subject is to be made.
func (sel selection) has(subject, measurement string) bool {
	return len(sel) == 0 || slices.ContainsFunc(sel, func(term string) bool {
		s, m, both := strings.Cut(strings.TrimSpace(term), ":")
		if both {
			return strings.Contains(subject, s) && strings.Contains(measurement, m)
		}
		return strings.Contains(subject, s) || strings.Contains(measurement, s)
	})
}
