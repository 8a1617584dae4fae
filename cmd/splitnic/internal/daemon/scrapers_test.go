package daemon

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
)

// TestScrapers has somebody connect to the metrics and say nothing, more often than
// there may be connections, and a scraper come when they are gone.
func TestScrapers(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := metricsServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "up 1\n")
	}))
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	const more = 10
	var conns []net.Conn
	for range maxScrapers + more {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	closed := make(chan int, len(conns))
	for i, c := range conns {
		go func() {
			if _, err := c.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) &&
				!errors.Is(err, net.ErrClosed) {
				closed <- i
			}
		}()
	}
	for range more {
		select {
		case i := <-closed:
			if i < maxScrapers {
				t.Errorf("connection %d was closed", i)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("too many connections stay open")
		}
	}
	for _, c := range conns {
		c.Close()
	}
	testenv.Eventually(t, func() bool {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get("http://" + ln.Addr().String() + "/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return err == nil && string(b) == "up 1\n"
	}, "a scraper gets the metrics")
}

// TestScrapersArePaced has all scrapers that there can be ask again and again.
func TestScrapersArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		h := paced(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
		const lasts = 10 * time.Second
		ctx, cancel := context.WithCancel(t.Context()) // requests have no deadline
		time.AfterFunc(lasts, cancel)
		var scrapers sync.WaitGroup
		for range maxScrapers {
			scrapers.Go(func() {
				for ctx.Err() == nil && asked.Load() < 1e5 {
					r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil)
					h.ServeHTTP(httptest.NewRecorder(), r)
				}
			})
		}
		scrapers.Wait()
		most := int64(scrapeBurst + scrapeRate*lasts.Seconds())
		if n := asked.Load(); n > most || n < most-maxScrapers {
			t.Errorf("%d requests were answered in %v, want %d", n, lasts, most)
		}
	})
}

// TestScrapersCollectInTurn has many ask at once.
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
	for range maxScrapers {
		scrapers.Go(func() {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
		})
	}
	scrapers.Wait()
	if n := most.Load(); n != 1 {
		t.Errorf("%d at once had the metrics collected", n)
	}
}
