package daemon

import (
	"fmt"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/counter"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// fill gives each counter of the structs a different value.
func fill(structs ...any) {
	value := uint64(100)
	for _, counters := range structs {
		v := reflect.ValueOf(counters).Elem()
		for i := range v.NumField() {
			value++
			v.Field(i).SetUint(value)
		}
	}
}

// TestCounterMetrics expects each counter of the tables in the metrics, with its value, and some
// of them under the documented names.
func TestCounterMetrics(t *testing.T) {
	var c messaging.ChannelStats
	var h iounit.HostStatus
	fill(&c.TxCounters, &c.RxCounters, &h.Statistics, &h.Dropped, &h.PortCounters)
	w := httptest.NewRecorder()
	handler(func(emit emit) {
		hostTraffic.emit(emit, peer{"unit", "sha256:1"}, &messaging.Stats{Channels: []messaging.ChannelStats{c}})
		portMetrics(emit, peerOf(&h), &h)
	}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, table := range []struct {
		counters []counter.Counter
		values   []uint64
	}{{messaging.Counters(), c.Counts()}, {iounit.HostCounters(), h.Counts()}} {
		if len(table.counters) != len(table.values) {
			t.Fatalf("%d counters, %d values", len(table.counters), len(table.values))
		}
		for i, counter := range table.counters {
			family, part := FamilyOf(counter)
			found := false
			for line := range strings.Lines(w.Body.String()) {
				found = found || strings.HasPrefix(line, MetricName(family)+"{") && strings.Contains(line, part) &&
					strings.HasSuffix(line, fmt.Sprintf(" %d\n", table.values[i]))
			}
			if !found {
				t.Errorf("%s is not in %s, %q", counter.Name, MetricName(family), part)
			}
		}
	}
	for _, want := range []string{
		fmt.Sprintf(`splitnic_frames_total{direction="tx",iounit="unit",key="sha256:1",queue="1"} %d`, c.TxFrames),
		fmt.Sprintf(`splitnic_dropped_frames_total{direction="rx",iounit="unit",key="sha256:1",queue="1",`+
			`reason="malformed"} %d`, c.RxMalformed),
		fmt.Sprintf(`splitnic_waits_total{direction="tx",for="credit",iounit="unit",key="sha256:1",queue="1"} %d`,
			c.TxNoCredit),
		fmt.Sprintf(`splitnic_doorbells_total{iounit="unit",key="sha256:1",queue="1"} %d`, c.TxPosts),
		fmt.Sprintf(`splitnic_windows_total{event="invalidated_by_peer",iounit="unit",key="sha256:1",queue="1"} %d`,
			c.WindowsInvalidatedByPeer),
		fmt.Sprintf(`splitnic_channel_events_total{event="tx_padded",iounit="unit",key="sha256:1",queue="1"} %d`, c.TxPadded),
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("there is no %s in\n%s", want, w.Body)
		}
	}
}
