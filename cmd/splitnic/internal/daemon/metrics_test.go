package daemon

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/splitnic/splitnic/splitdrv/host/discovery"
)

// scraped returns the response of h.
func scraped(h http.Handler) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// TestProcessMetrics expects one metric of each Prometheus collector, and the one about the
// build of the program.
func TestProcessMetrics(t *testing.T) {
	text := scraped(handler(func(emit emit) { buildMetrics(emit, "v1.2.3") }))
	for _, want := range []string{
		"process_resident_memory_bytes ", "process_open_fds ", "go_goroutines ", "go_memstats_heap_inuse_bytes ",
		`splitnic_build_info{goarch="` + runtime.GOARCH + `",goversion="` + runtime.Version() + `",protocol="1",revision=`,
		`version="v1.2.3"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
}

// TestMetricsOfOddNames expects labels with the names of a card and a device to be printable: one
// that is not UTF-8 would be the end of all metrics.
func TestMetricsOfOddNames(t *testing.T) {
	text := scraped(cardHandler(func(emit) {}, func() map[string]func(emit) {
		return map[string]func(emit){"\xff": func(emit emit) {
			emit(descCarrier, prometheus.GaugeValue, 1, "sn\x1b[2J\xff")
		}}
	}))
	if want := `splitnic_carrier{card="?",netdevice="sn?[2J?"} 1`; !strings.Contains(text, want+"\n") {
		t.Errorf("there is no %s in\n%s", want, text)
	}
}

// TestDNSMetrics has one name for which DNS has an answer, and one that never had one.
func TestDNSMetrics(t *testing.T) {
	text := scraped(handler(func(emit emit) {
		dnsMetrics(emit, []discovery.Status{
			{Name: "a.example", Units: 3, Answered: time.Unix(1700000000, 5e8), Failures: 2},
			{Name: "b.example", Failures: 9, Error: "the name does not exist"},
		})
	}))
	for _, want := range []string{
		`splitnic_dns_failures_total{name="a.example"} 2`, `splitnic_dns_failures_total{name="b.example"} 9`,
		`splitnic_dns_iounits{name="a.example"} 3`, `splitnic_dns_iounits{name="b.example"} 0`,
		`splitnic_dns_answered_timestamp_seconds{name="a.example"} 1.7e+09`,
		`splitnic_dns_answered_timestamp_seconds{name="b.example"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
}

// TestScrapersCollectInTurn sends many requests at once and expects the metrics to be collected
// by one of them at a time.
func TestScrapersCollectInTurn(t *testing.T) {
	var at, most atomic.Int32
	h := handler(func(emit) {
		if n := at.Add(1); n > most.Load() {
			most.Store(n)
		}
		runtime.Gosched()
		at.Add(-1)
	})
	var scrapers sync.WaitGroup
	for range 64 {
		scrapers.Go(func() {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
		})
	}
	scrapers.Wait()
	if n := most.Load(); n != 1 {
		t.Errorf("%d at once had the metrics collected", n)
	}
}
