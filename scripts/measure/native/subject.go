package native

import (
	"slices"
	"strings"

	"github.com/splitnic/splitnic/scripts/measure/results"
)

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

// third is 1/3 in goals, as their tables show it.
const third = 0.333

// Suite returns the suite of `make bench-native`.
func Suite() *results.Suite {
	// These are patterns for splitnic with each kind of LAN interface, with the offloads.
	aim := func(what, group, metric string, ratio bool, op string, bound float64) results.Aim {
		return results.Aim{What: what, Group: group, Subject: splitnic + "/*", Metric: metric, Ratio: ratio, Op: op,
			Bound: bound}
	}
	encrypted := func(what, group, metric, op string, bound float64) results.Aim {
		return results.Aim{What: what, Group: group, Subject: splitnic + "/*" + encryptedSuffix, Metric: metric, Op: op,
			Bound: bound}
	}
	of := func(subject string) func(k *results.Key) { return func(k *results.Key) { k.Subject = subject } }
	inTheClear := func(k *results.Key) { k.Subject = strings.TrimSuffix(k.Subject, encryptedSuffix) }
	port := func(what, group, metric string, ratio bool, bound float64) results.Aim {
		return results.Aim{What: what, Group: group, Subject: portSubject, Metric: metric, Ratio: ratio, Op: ">=",
			Bound: bound}
	}
	to := func(a results.Aim, change func(k *results.Key)) results.Aim {
		a.To = change
		return a
	}
	return &results.Suite{
		Name: "bench-native", Rounds: 5, References: references, Aims: []results.Aim{
			aim("TCP, to the relay", "tcp.*", throughput, true, ">=", 0.8),
			aim("small UDP, to the relay", "udp.?x", rate, true, ">=", 0.6),
			aim("an endpoint's processor time for TCP, without the fabric's copy, to the relay", "tcp.*", noCopy, true, "<=", 0.9),
			aim("round trip, to the relay", "rtt", median50, true, "<=", 1.2),
			aim("ping, to the relay", "ping", average, true, "<=", 1.1),
			to(aim("TCP, to that without offloads", "tcp.*", throughput, false, ">=", 5),
				func(k *results.Key) { k.Subject += plainSuffix }),
			to(encrypted("TCP, encrypted, to that in the clear", "tcp.*", throughput, ">=", 0.6), inTheClear),
			to(encrypted("small UDP, encrypted, to that in the clear", "udp.?x", rate, ">=", 0.7), inTheClear),
			to(encrypted("an endpoint's processor time for TCP, encrypted, to WireGuard in user space", "tcp.*", cpuEndpoint,
				"<=", third), of(wireguardGo)),
			to(encrypted("the machine's processor time for TCP, encrypted, to the kernel's WireGuard", "tcp.*", cpuMachine,
				"<=", third), of(wireguard)),
			to(aim("small UDP of 64 flows, to one flow", "udp.*.64flows", rate, false, ">=", 0.9),
				func(k *results.Key) { k.Group = strings.TrimSuffix(k.Group, ".64flows") }),
			aim("more UDP than can be carried: what arrives", "overload.*", "arrived at *", false, ">=", 0.8),
			aim("system calls of an endpoint for a super-frame", "tcp.*", callMetric, false, "<=", 1),
			aim("system calls of an endpoint for a small frame", "udp.?x", callMetric, false, "<=", 0.5),
			aim("an endpoint without frames", idle, idleMetric, false, "<", 0.5),
			port("frames out of a vhost-user port, to a TAP device", vhostOut, rate, true, 10),
			port("frames into a vhost-user port, to a TAP device", vhostIn, rate, true, 20),
			port("frames through the card with vhost-user at both ends", vhostCard, rate, false, 3000),
		},
		Remark: "processor time is that of an endpoint, which is half of the process with both endpoints, or of the " +
			"relay, and that of the whole machine with both ends of the traffic; the fabric in memory copies each frame " +
			"once, and makes a system call for each event, where an adapter would do it",
	}
}

// compared has the metrics of which a ratio is meaningful.
var compared = []string{throughput, rate, median50, median99, average, cpuEndpoint, noCopy, cpuMachine, callMetric}

// references returns the keys of the rows to which r is compared. They are those of the relay
// with the same kind of port for splitnic, and of the kernel's device for a vhost-user port.
func references(r *results.Row) []results.Key {
	k := r.Key
	s, ok := parseSubject(r.Subject)
	switch {
	case r.Subject == portSubject && r.Group == vhostCard:
		k.Subject = veth
	case r.Subject == portSubject:
		k.Subject = tapSubject
	case ok && s.what == splitnic && slices.Contains(compared, r.Metric):
		k.Subject = subject{what: relay, port: s.port}.String()
	default:
		return nil
	}
	return []results.Key{k}
}
