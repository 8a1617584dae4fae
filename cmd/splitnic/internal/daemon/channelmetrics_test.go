package daemon

import (
	"fmt"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// TestChannelMetrics wants each counter of a data channel among the metrics, with its
// value, and some under the names that are documented.
func TestChannelMetrics(t *testing.T) {
	var c messaging.ChannelStats
	value := uint64(100)
	for _, counters := range []reflect.Value{reflect.ValueOf(&c.TxCounters).Elem(),
		reflect.ValueOf(&c.RxCounters).Elem()} {
		for i := range counters.NumField() {
			value++
			counters.Field(i).SetUint(value)
		}
	}
	w := httptest.NewRecorder()
	handler(func(emit emit) {
		trafficMetrics(emit, "unit", &messaging.Stats{Channels: []messaging.ChannelStats{c}})
	}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	values := c.Counts()
	for i, counter := range messaging.Counters() {
		family, part := FamilyOf(counter)
		found := false
		for line := range strings.Lines(w.Body.String()) {
			found = found || strings.HasPrefix(line, MetricName(family)+"{") && strings.Contains(line, part) &&
				strings.HasSuffix(line, fmt.Sprintf(" %d\n", values[i]))
		}
		if !found {
			t.Errorf("%s is not in %s, %q", counter.Name, MetricName(family), part)
		}
	}
	for _, want := range []string{
		fmt.Sprintf(`splitnic_frames_total{direction="tx",peer="unit",queue="1"} %d`, c.TxFrames),
		fmt.Sprintf(`splitnic_dropped_frames_total{direction="rx",peer="unit",queue="1",reason="malformed"} %d`,
			c.RxMalformed),
		fmt.Sprintf(`splitnic_waits_total{direction="tx",for="credit",peer="unit",queue="1"} %d`, c.TxNoCredit),
		fmt.Sprintf(`splitnic_doorbells_total{peer="unit",queue="1"} %d`, c.TxPosts),
		fmt.Sprintf(`splitnic_windows_total{event="invalidated_by_peer",peer="unit",queue="1"} %d`, c.WindowsInvalidatedByPeer),
		fmt.Sprintf(`splitnic_channel_events_total{event="tx_padded",peer="unit",queue="1"} %d`, c.TxPadded),
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("there is no %s in\n%s", want, w.Body)
		}
	}
}
