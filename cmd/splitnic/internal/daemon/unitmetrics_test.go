package daemon

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/iounit/guard"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/session"
)

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
		LAN:        iounit.LANStatus{Up: true},
		Direct: &iounit.DirectStatus{
			DirectCounters: iounit.DirectCounters{Offers: 31, Starts: 32, Kept: 33, Unanswered: 34, Stray: 35},
			Ended:          map[string]uint64{"policy": 36},
			Pairs: []iounit.DirectPair{
				{Hosts: [2]string{"alpha", "beta"}, ID: 7, Step: "started", Mode: protocol.ModeImm},
				{Hosts: [2]string{"alpha", "gamma"}, Step: "none", Why: "mtu"},
				{Hosts: [2]string{"beta", "gamma"}, ID: 8, Step: "ending", Why: "policy"},
			},
		},
		Bootstrap: session.ListenerStats{Connections: 70, Handshaking: 6, Handshakes: 50, Delayed: 4},
		Memory:    iounit.MemoryStatus{Used: 3 << 20, Limit: 64 << 20},
		Hosts: []iounit.HostStatus{{
			Dropped:       guard.Dropped{NestedTags: 51, LinkControl: 52, IPSource: 53, TinySegments: 54, GroupRate: 55},
			DropReasons:   []string{"the first of its kind"},
			MaxTxGroupPPS: 1234,
			PortCounters:  iounit.PortCounters{HeartbeatsThrottled: 8, TxOversize: 21, TxLimited: 12, RxLimited: 3},
			MaxRxPPS:      70_000, MaxTxRate: 2_500_000_000,
			Name: "alpha", Fingerprint: "sha256:a", Mode: protocol.ModeSend, MAC: "02:00:00:00:00:01", Up: true, VLANs: vlans,
			Filter:     protocol.ReceiveFilter{Multicast: make([]protocol.Group, 7), Unicast: make([]protocol.MAC, 2)},
			Statistics: protocol.Statistics{RxFrames: 1, RxFiltered: 22, TxSource: 333, TxVLAN: 4444, TxBytes: 99},
		}},
	}
}

func TestUnitMetrics(t *testing.T) {
	s := unitStatus(t)
	h := handler(func(emit emit) {
		unitMetrics(emit, s)
		portMetrics(emit, peerOf(&s.Hosts[0]), &s.Hosts[0])
	})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text := w.Body.String()
	for _, want := range []string{
		`splitnic_iounit_protocol_violations_total{rule="frame"} 3`,
		`splitnic_iounit_protocol_violations_total{rule="sequence"} 0`,
		`splitnic_iounit_sessions_ended_total{reason="queue-pair"} 5`,
		`splitnic_iounit_sessions_ended_total{reason="protocol"} 0`,
		`splitnic_iounit_lan_up 1`,
		`splitnic_iounit_frames_unrevoked_total 17`,
		`splitnic_iounit_connections_total 70`,
		`splitnic_iounit_direct_offers_total 31`,
		`splitnic_iounit_direct_starts_total 32`,
		`splitnic_iounit_direct_kept_total 33`,
		`splitnic_iounit_direct_unanswered_total 34`,
		`splitnic_iounit_direct_stray_messages_total 35`,
		`splitnic_iounit_direct_ended_total{reason="policy"} 36`,
		`splitnic_iounit_direct_ended_total{reason="timeout"} 0`,
		`splitnic_iounit_direct_connections{step="started"} 1`,
		`splitnic_iounit_direct_connections{step="offered"} 0`,
		`splitnic_iounit_direct_connections{step="ending"} 1`,
		`splitnic_iounit_connections_in_handshake 6`,
		`splitnic_iounit_handshakes_total 50`,
		`splitnic_iounit_handshakes_delayed_total 4`,
		`splitnic_iounit_host_heartbeats_throttled_total{host="alpha",key="sha256:a"} 8`,
		`splitnic_iounit_host_oversize_frames_total{host="alpha",key="sha256:a"} 21`,
		`splitnic_iounit_host_rate_limit_bits_per_second{direction="tx",host="alpha",key="sha256:a"} 2.5e+09`,
		`splitnic_iounit_host_limited_total{direction="tx",host="alpha",key="sha256:a"} 12`,
		`splitnic_iounit_host_limited_total{direction="rx",host="alpha",key="sha256:a"} 3`,
		`splitnic_iounit_registered_bytes_limit 6.7108864e+07`,
		`splitnic_iounit_host_frames_total{direction="tx",host="alpha",key="sha256:a",outcome="source"} 333`,
		`splitnic_iounit_host_frames_total{direction="tx",host="alpha",key="sha256:a",outcome="vlan"} 4444`,
		`splitnic_iounit_host_frames_total{direction="rx",host="alpha",key="sha256:a",outcome="filtered"} 22`,
		`splitnic_iounit_host_frames_total{direction="tx",host="alpha",key="sha256:a",outcome="nested_tags"} 51`,
		`splitnic_iounit_host_frames_total{direction="tx",host="alpha",key="sha256:a",outcome="link_control"} 52`,
		`splitnic_iounit_host_frames_total{direction="tx",host="alpha",key="sha256:a",outcome="ip_source"} 53`,
		`splitnic_iounit_host_frames_total{direction="tx",host="alpha",key="sha256:a",outcome="tiny_segments"} 54`,
		`splitnic_iounit_host_frames_total{direction="tx",host="alpha",key="sha256:a",outcome="group_rate"} 55`,
		`splitnic_iounit_host_group_rate_limit_packets_per_second{host="alpha",key="sha256:a"} 1234`,
		`splitnic_iounit_host_rate_limit_packets_per_second{direction="rx",host="alpha",key="sha256:a"} 70000`,
		`splitnic_iounit_host_bytes_total{direction="tx",host="alpha",key="sha256:a"} 99`,
		`splitnic_iounit_host_groups{host="alpha",key="sha256:a"} 7`,
		`splitnic_iounit_host_vlans{host="alpha",key="sha256:a"} 11`,
		`splitnic_iounit_host_up{host="alpha",key="sha256:a"} 1`,
		`splitnic_iounit_host_promiscuous{host="alpha",key="sha256:a"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
}

func TestHandlerMetrics(t *testing.T) {
	s := &messaging.Stats{
		Channels: []messaging.ChannelStats{{Handler: 2}},
		Handlers: []cq.HandlerStats{{}, {Handler: cq.Handler{Number: 1}, Completions: 7, Wakeups: 5,
			BudgetExhausted: 3}},
	}
	text := scraped(handler(func(emit emit) { unitTraffic.emit(emit, peer{"alpha", "sha256:a"}, s) }))
	for _, want := range []string{
		`splitnic_handler_events_total{event="completions",handler="1",host="alpha",key="sha256:a"} 7`,
		`splitnic_handler_events_total{event="wakeups",handler="1",host="alpha",key="sha256:a"} 5`,
		`splitnic_handler_events_total{event="budget_exhausted",handler="1",host="alpha",key="sha256:a"} 3`,
		`splitnic_queue_handler{host="alpha",key="sha256:a",queue="1"} 2`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
}
