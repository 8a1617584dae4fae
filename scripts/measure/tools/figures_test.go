package tools

import (
	"strings"
	"testing"
)

const (
	iperfTCP = `{"start": {"test_start": {"blksize": 131072}}, "end": {
		"sum_sent": {"seconds": 2, "bits_per_second": 9000000},
		"sum_received": {"seconds": 2, "bits_per_second": 8000000}}}`
	// The receiver's bits_per_second also counts lost datagrams.
	iperfUDP = `{"start": {"test_start": {"blksize": 1000}}, "end": {
		"sum_sent": {"seconds": 2, "bits_per_second": 900000000},
		"sum_received": {"seconds": 2, "bits_per_second": 80000000, "packets": 1000, "lost_packets": 250}}}`
	pings = `PING 10.0.0.1 (10.0.0.1) 56(84) bytes of data.
64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=90.1 ms
64 bytes from 10.0.0.1: icmp_seq=2 ttl=64 time=0.100 ms
64 bytes from 10.0.0.1: icmp_seq=3 ttl=64 time=0.300 ms

--- 10.0.0.1 ping statistics ---
3 packets transmitted, 3 received, 0% packet loss, time 2ms
rtt min/avg/max/mdev = 0.1/30.2/90.1/0.1 ms
`
	directly = `[{"role": "host", "direct": {"on": true, "connections": [{"state": "established", "took_ns": 12500000}]},
		"traffic": {"channels": [{"tx_frames": 30}, {"tx_frames": 3}]}}]`
)

func TestFigures(t *testing.T) {
	for _, c := range []struct {
		name       string
		from, want string
		fails      bool
	}{
		{"iperf-tcp", iperfTCP, "8.0000", false},
		{"iperf-tcp", `{"error": "unable to connect"}`, "unable to connect", true},
		{"iperf-tcp", `{"end": {}}`, "above 0", true},
		{"iperf-tcp", ``, "EOF", true},
		{"iperf-udp", iperfUDP, "3.0000 375.0000", false},
		{"iperf-udp", strings.Replace(iperfUDP, "250", "1000", 1), "above 0", true},
		{"iperf-udp", iperfTCP, "above 0", true},
		{"iperf-udp", `{"end": {}}`, "no time", true},
		{"ping", pings, "300.0000 90100.0000 3.0000", false},
		{"ping", "PING 10.0.0.1\n", "no answer", true},
		{"direct", directly, "12.5000 33.0000", false},
		{"direct", strings.Replace(directly, "established", "opening", 1), "no direct connection", true},
		{"direct", `[{"direct": {"connections": []}}]`, "no direct connection", true},
		{"direct", `{`, "status", true},
	} {
		got, err := Filters[c.name](strings.NewReader(c.from))
		if c.fails && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %q: %q, %v; want an error about %q", c.name, c.from, got, err, c.want)
		}
		if !c.fails && (err != nil || got != c.want) {
			t.Errorf("%s %q: %q, %v; want %q", c.name, c.from, got, err, c.want)
		}
	}
}
