package scrape

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
)

// up is the handler that is served.
var up = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") })

// TestScrapers makes more idle connections to the metrics than there may be, and expects the
// surplus ones to be closed. When the others are closed, a scraper gets the metrics.
func TestScrapers(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := Serve(ln, up, "", slog.New(slog.DiscardHandler))
	defer stop()
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
		case <-time.After(testenv.Patience):
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

// TestScrapersArePaced has the maximal number of scrapers connect, or send requests, all the
// time, and expects the limited rate.
func TestScrapersArePaced(t *testing.T) {
	for _, state := range []http.ConnState{http.StateNew, http.StateActive} {
		synctest.Test(t, func(t *testing.T) {
			s := newScrapers()
			const lasts = 10 * time.Second
			var asked atomic.Int64
			var done atomic.Bool
			time.AfterFunc(lasts, func() { done.Store(true) })
			var all sync.WaitGroup
			for range maxScrapers {
				all.Go(func() {
					for asked.Load() < 1e5 {
						s.connState(nil, state)
						if done.Load() {
							return
						}
						asked.Add(1)
						if state == http.StateNew {
							s.connState(nil, http.StateClosed)
						}
					}
				})
			}
			all.Wait()
			most := int64(burst + rate*lasts.Seconds())
			if n := asked.Load(); n > most || n < most-maxScrapers {
				t.Errorf("%v: %d in %v, want %d", state, n, lasts, most)
			}
		})
	}
}
