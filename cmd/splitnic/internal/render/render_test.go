package render

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/internal/irq"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/direct"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/iounit/guard"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vhostuser"
)

// TestPrintHandlers prints everything that there can be about handlers.
func TestPrintHandlers(t *testing.T) {
	s := host.Status{
		Role: "host", CompVectors: 2,
		Handling: cq.Handling{Handlers: []cq.Handler{{},
			{Number: 1, CPUs: cpus.List{0, 1, 2}, Spin: 20 * time.Microsecond},
			{Number: 2, Spin: time.Millisecond, Adaptive: true}}},
	}
	show := func() string {
		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return details(t, raw)
	}
	expect := func(words ...string) {
		t.Helper()
		text := show()
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("the status does not say %q:\n%s", w, text)
			}
		}
	}
	expect("completion vectors  2, of the device", "handler 1", "processors 0-2", "polls for 20µs",
		"polls for up to 1ms, adaptively")
	s.Traffic = &messaging.Stats{
		Channels: []messaging.ChannelStats{{Handler: 2, CompVector: 1}, {Handler: 2, CompVector: 0}},
		Handlers: []cq.HandlerStats{
			{Channels: []int{0}},
			{Handler: cq.Handler{Number: 1}, Vector: 1, Channels: []int{}},
			{
				Handler: cq.Handler{Number: 2, Priority: -5, Budget: 77}, Channels: []int{1, 2},
				Completions: 4711, Wakeups: 42, BudgetExhausted: 13,
				Workers: []cq.WorkerStats{
					{Channel: 2, Role: cq.RoleSender, Thread: 1234, CPUs: cpus.List{3}, Priority: -4},
					{Channel: 1, Role: cq.RoleReceiver, Pending: true, Error: "out of paper"},
				},
			},
		},
	}
	expect("control channel, completion vector 0", "no queue, completion vector 1", "queues 1, 2, completion vector 0",
		"priority -5", "budget 77",
		"4711 completions, 42 wake-ups, budget exhausted 13 times", "sender of queue 2: thread 1234 on 3, priority -4",
		"receiver of queue 1: has not followed yet; refused: out of paper",
		"completion vector 1, and 0 from the next session on", "handler 2, completion vector 1")
}

// TestPrintInterrupts prints the interrupts of an adapter, and queues without a handler.
func TestPrintInterrupts(t *testing.T) {
	var out bytes.Buffer
	v := NewHandlers(2, daemon.Interrupts{
		Vectors: []irq.Vector{
			{Number: 0, IRQ: 45, Name: "mlx5_comp0", CPUs: cpus.List{0, 1, 2}, Effective: cpus.List{2}},
			{Number: 1, IRQ: 46, Name: "mlx5_comp1", CPUs: cpus.List{3}},
		},
		Balancer: 812, Error: "out of files",
	}, cq.Handling{}, &messaging.Stats{
		Handlers: []cq.HandlerStats{},
		Channels: []messaging.ChannelStats{{Handler: cq.Unassigned, CompVector: 1}},
	})
	v.Print(&out, "")
	for _, want := range []string{
		"vector 0\tinterrupt 45, mlx5_comp0, may go to processors 0-2, goes to 2\n",
		"vector 1\tinterrupt 46, mlx5_comp1, may go to processors 3\n", "irqbalance\tprocess 812", "unknown: out of files",
		"queue 1\tno handler, completion vector 1\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &out)
		}
	}
}

func TestPrintLatency(t *testing.T) {
	for _, c := range []struct {
		s    *steer.Status
		want []string
	}{
		{nil, nil},
		{&steer.Status{On: true, Classes: steer.DefaultClasses(), Limit: 1518}, []string{"va,ef,cs6,cs7", "1518"}},
		{&steer.Status{On: true, Classes: steer.Classes{Size: 99}, Limit: 1518}, []string{"none", "99"}},
		{&steer.Status{Reason: "for a reason"}, []string{"none", "for a reason"}},
	} {
		var b bytes.Buffer
		printLatency(&b, "", c.s)
		if c.want == nil && b.Len() > 0 {
			t.Errorf("without any: %q", b.String())
		}
		for _, w := range c.want {
			if !strings.Contains(b.String(), w) {
				t.Errorf("%+v: %q", c.s, b.String())
			}
		}
	}
}

// TestPrintHost prints everything that there can be in the status of a host.
func TestPrintHost(t *testing.T) {
	vlans := protocol.AllVLANs()
	raw, err := json.Marshal(host.Status{
		Role: "host", Name: "alpha", State: host.Connected,
		IOUnit: host.IOUnitStatus{
			Mode: protocol.ModeIndicate, Insecure: true, Drains: true, Stays: "alone", PathMTULimit: 2048,
		},
		LastError: "was before",
		Filter:    &protocol.ReceiveFilter{AllMulti: true, Unicast: []protocol.MAC{{2}}}, VLANs: &vlans,
		LastRefusal: &mirror.Rejection{What: "promiscuous mode", Wanted: "on", Reason: "the I/O unit: denied",
			At: time.Now()},
		Traffic: &messaging.Stats{PoolsAsked: 4711, Channels: []messaging.ChannelStats{{
			LocalPools: []messaging.Pool{{ElementSize: 2048, Ledger: messaging.Ledger{Elements: 256}},
				{ElementSize: 65535, Extra: true, Ledger: messaging.Ledger{Elements: 32}}},
			RxCounters:    messaging.RxCounters[uint64]{RxLost: 23, Revocations: 4, RevocationTime: 100_000},
			RevocationMax: 70 * time.Microsecond, Handler: cq.Unassigned,
			MemoryPinned: 3 << 20,
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	text := details(t, raw)
	for _, want := range []string{
		"indicate", "all multicast, 1 further", "VLANs", "promiscuous mode on", "denied",
		"4711 asked for", "256×2048, 32×65535 (asked for) lent", "3MiB", "23 frames",
		"keys void 25µs after", "at most 70µs, in 4 batches", "no handler, completion",
		"INSECURE: nobody is authenticated", "asks its hosts to go; this one stays: alone", "2048 bytes: larger packets",
		"was before",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the status does not say %q:\n%s", want, text)
		}
	}
	if raw, err = json.Marshal(host.Status{Role: "host", Name: "alpha", State: host.Connected}); err != nil {
		t.Fatal(err)
	}
	text = details(t, raw)
	for _, no := range []string{"INSECURE", "drains", "path MTU", "last error", "VLANs"} {
		if strings.Contains(text, no) {
			t.Errorf("the status of another host says %q:\n%s", no, text)
		}
	}
}

// details returns what `splitnic status -v` prints for a status in JSON.
func details(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	s, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Details(&out, []Status{s}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestPrintHostDirect prints why a host has no direct connections, or how many it has.
func TestPrintHostDirect(t *testing.T) {
	one := []direct.ConnectionStatus{{Peer: "beta", State: direct.Established}}
	for _, c := range []struct {
		state host.State
		s     direct.Status
		want  string
	}{
		{host.Connected, direct.Status{}, "no (--direct=no)"},
		{host.Connected, direct.Status{On: true}, "no: the I/O unit directs none"},
		{host.Connecting, direct.Status{On: true}, "no: there is no session"},
		{host.Connecting, direct.Status{On: true, Connections: one}, "1 connection, ended: 0"},
		{host.Connected, direct.Status{On: true, Granted: true, Connections: one}, "1 connection, ended: 0"},
	} {
		var b strings.Builder
		printHostDirect(&b, "", c.state, &c.s)
		if !strings.Contains(b.String(), c.want) || strings.Contains(b.String(), "to beta") != (c.s.Connections != nil) {
			t.Errorf("%s: %q, want %q", c.state, b.String(), c.want)
		}
	}
}

func unitStatus(t *testing.T) *iounit.Status {
	t.Helper()
	vlans, err := protocol.ParseVLANs("5,10-19")
	if err != nil {
		t.Fatal(err)
	}
	return &iounit.Status{
		Violations: map[string]uint64{"frame": 3, "size": 1},
		Ended:      map[string]uint64{"queue-pair": 5},
		Unrevoked:  17,
		Direct: &iounit.DirectStatus{
			DirectCounters: iounit.DirectCounters{Offers: 31, Starts: 32, Kept: 33, Unanswered: 34, Stray: 35},
			Ended:          map[string]uint64{"policy": 36},
			Pairs: []iounit.DirectPair{
				{Hosts: [2]string{"alpha", "beta"}, ID: 7, Step: "started", Since: time.Now(), Mode: protocol.ModeImm},
				{Hosts: [2]string{"alpha", "gamma"}, Step: "none", Why: "mtu"},
				{Hosts: [2]string{"beta", "gamma"}, ID: 8, Step: "ending", Since: time.Now(), Mode: protocol.ModeSend,
					Why: "policy"},
			},
		},
		Bootstrap: session.ListenerStats{Connections: 70, Handshaking: 6, Handshakes: 50, Delayed: 4},
		Memory:    iounit.MemoryStatus{Used: 3 << 20, Limit: 64 << 20},
		Hosts: []iounit.HostStatus{{
			Dropped:       guard.Dropped{NestedTags: 51, LinkControl: 52, IPSource: 53, TinySegments: 54, GroupRate: 55},
			DropReasons:   []string{"the first of its kind"},
			EarlyDiscard:  discard.Status{Reason: "for no reason"},
			MaxTxGroupPPS: 1234,
			PortCounters:  iounit.PortCounters{HeartbeatsThrottled: 8, TxOversize: 21, TxLimited: 12, RxLimited: 3},
			MaxRxPPS:      70_000, MaxTxRate: 2_500_000_000,
			Name: "alpha", Mode: protocol.ModeSend, MAC: "02:00:00:00:00:01", Up: true, VLANs: vlans,
			Filter:     protocol.ReceiveFilter{Multicast: make([]protocol.Group, 7), Unicast: make([]protocol.MAC, 2)},
			Statistics: protocol.Statistics{RxFrames: 1, RxFiltered: 22, TxSource: 333, TxVLAN: 4444, TxBytes: 99},
		}},
	}
}

func TestUnitStatusText(t *testing.T) {
	s := unitStatus(t)
	show := func() string {
		var b strings.Builder
		w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
		printTotals(w, s)
		printDirect(w, s.Direct)
		printPort(w, "", &s.Hosts[0])
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for _, step := range []struct {
		change func()
		want   []string
	}{
		{func() {}, []string{
			"3MiB registered, of 64MiB", "frame 3, size 1", "queue-pair 5",
			"70, 6 of them in their handshake; 50 handshakes, 4 delayed", "up, mode send, VLANs 5,10-19",
			"02:00:00:00:00:01 and 2 more addresses, 7 groups",
			"2.5Gbit to the LAN, limited 12 times; unlimited and 70000 packets/s from it, limited 3 times", "22 filtered",
			"333 source, 4444 vlan, 51 nested tags, 52 link control, 53 ip source, 54 tiny segments, 55 group rate",
			"1234 packets/s to the LAN, more are dropped", "the first of its kind",
			"off: for no reason", "31 offered, 32 started, 33 of them from before", "policy 36",
			"started for 0s, mode imm\n", "not direct: mtu\n", "ending for 0s, mode send: policy\n",
		}},
		{func() { s.Direct = nil }, []string{" off\n"}},
		{func() { s.Hosts[0].EarlyDiscard.On = true }, []string{"early discard", "on\n"}},
		{func() { s.Hosts[0].Filter = protocol.ReceiveFilter{AllMulti: true} }, []string{"02:00:00:00:00:01, all groups"}},
		{func() { s.Hosts[0].MaxTxRate, s.Hosts[0].MaxRxRate = 500_000, 33_333_333 },
			[]string{"500kbit to", "33.333333Mbit and 70000 packets/s from"}},
		{func() { s.Hosts[0].Filter = protocol.ReceiveFilter{Promisc: true} }, []string{"everything (promiscuous)"}},
		{func() { s.Hosts[0].Up, s.Memory.Limit = false, 0 }, []string{"down, mode", "no limit"}},
	} {
		step.change()
		got := show()
		for _, want := range step.want {
			if !strings.Contains(got, want) {
				t.Errorf("there is no %q in\n%s", want, got)
			}
		}
	}
	h := &s.Hosts[0]
	h.MaxTxRate, h.MaxRxRate, h.MaxRxPPS, h.TxLimited, h.RxLimited = 0, 0, 0, 0, 0
	if got := show(); strings.Contains(got, "limited") {
		t.Errorf("a host without a bound has rates:\n%s", got)
	}
}

// TestPrintSecurity prints keys, trust and reloads.
func TestPrintSecurity(t *testing.T) {
	s := daemon.SecurityStatus{
		Fingerprint: "sha256:own", Platform: 0xabc, Standing: session.Standing{Keys: 1},
		Reload: daemon.ReloadStatus{Failed: 1, Last: time.Now(), Error: "policy.yaml:1: nonsense"},
	}
	var text strings.Builder
	printSecurity(&text, &s)
	for _, want := range []string{s.Fingerprint, "0000000000000abc", "1 key; 0 keys revoked", "FAILED", "policy.yaml:1"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	for _, not := range []bool{false, true} {
		s.Begins, s.Expires = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		if not {
			s.Begins = time.Now().Add(time.Minute)
		}
		text.Reset()
		printSecurity(&text, &s)
		if strings.Contains(text.String(), "NOT VALID NOW") != not {
			t.Errorf("of a certificate that is valid from %v on:\n%s", s.Begins, text.String())
		}
	}
}

func TestPortText(t *testing.T) {
	for want, s := range map[string]vhostuser.Status{
		"vhost-user:/s: testpmd, 2 rings, packed,mq": {
			Path: "/s", FrontEnd: "testpmd", Rings: 2, Features: []string{"packed", "mq"},
		},
		"vhost-user:/s: testpmd, 2 rings, packed, 3MiB registered, but not all: why": {
			Path: "/s", FrontEnd: "testpmd", Rings: 2, Features: []string{"packed"}, Registered: 3 << 20, NotRegistered: "why",
		},
		"vhost-user:/s,client: nobody is connected: no": {Path: "/s", Client: true, LastError: "no"},
		"vhost-user:/s: nobody is connected":            {Path: "/s"},
	} {
		if got := portText(&s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
