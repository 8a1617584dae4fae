package daemon

import (
	"net"
	"net/http"
	"sync/atomic"
	"time"

	xrate "golang.org/x/time/rate"
)

// maxScrapers is how many connections there are to the metrics at a time. They are
// for whoever reaches their address, who must not use up the descriptors that this
// process needs for sessions.
const maxScrapers = 64

// What all scrapers together may ask. To answer takes a look at each session, which
// is also what a session's own requests take; each scraper asks every few seconds.
const (
	scrapeRate  = 20 // requests in a second in the long run
	scrapeBurst = 20 // at once
)

// maxScrapeRequest is the largest request in bytes: a scraper's is some hundred.
const maxScrapeRequest = 16 << 10

// paced answers no more requests than scrapeRate and scrapeBurst allow. The others
// wait. There are maxScrapers of them at most, one of each connection.
func paced(h http.Handler) http.Handler {
	limit := xrate.NewLimiter(scrapeRate, scrapeBurst)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if limit.Wait(r.Context()) == nil { // else the scraper has gone
			h.ServeHTTP(w, r)
		}
	})
}

// metricsServer serves metrics, and nothing else.
func metricsServer(metrics http.Handler) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	var open atomic.Int32
	return &http.Server{
		Handler: paced(mux), MaxHeaderBytes: maxScrapeRequest,
		ReadTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		ConnState: func(c net.Conn, s http.ConnState) {
			switch s {
			case http.StateNew:
				if open.Add(1) > maxScrapers {
					c.Close()
				}
			case http.StateClosed, http.StateHijacked:
				open.Add(-1)
			default:
			}
		},
	}
}
