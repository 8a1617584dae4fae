package scrape

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
	xrate "golang.org/x/time/rate"
)

// maxScrapers is how many connections there are to the metrics at a time. They are
// for whoever reaches their address, who must not use up the descriptors that this
// process needs for sessions.
const maxScrapers = 64

// What all scrapers together may do: connections, each of which can take a TLS
// handshake, and requests, each of which can take the check of a password and takes a
// look at each session, which is also what a session's own requests take. Each scraper
// asks every few seconds.
const (
	rate  = 20 // in a second in the long run
	burst = 20 // at once
)

// maxRequest is the largest request in bytes: a scraper's is some hundred.
const maxRequest = 16 << 10

// scrapers bounds what all scrapers together do.
type scrapers struct {
	open                  atomic.Int32
	connections, requests *xrate.Limiter
}

func newScrapers() *scrapers {
	return &scrapers{
		connections: xrate.NewLimiter(rate, burst),
		requests:    xrate.NewLimiter(rate, burst),
	}
}

// connState is the server's ConnState. The server waits for it before it does
// anything for a new connection, or for the next request of one: also before it
// authenticates anybody. Those that wait are maxScrapers at most.
func (s *scrapers) connState(c net.Conn, state http.ConnState) {
	wait := func(limit *xrate.Limiter) { _ = limit.Wait(context.Background()) } // cannot fail: no deadline
	switch state {
	case http.StateNew:
		if s.open.Add(1) > maxScrapers {
			c.Close()
			return
		}
		wait(s.connections)
	case http.StateActive:
		wait(s.requests)
	case http.StateClosed, http.StateHijacked:
		s.open.Add(-1)
	default:
	}
}

// newServer serves metrics by HTTP. It logs to messages.
func newServer(metrics http.Handler, messages *slog.Logger) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	// In HTTP/2 a connection would have many requests at a time.
	var http1 http.Protocols
	http1.SetHTTP1(true)
	return &http.Server{
		Handler: mux, MaxHeaderBytes: maxRequest, Protocols: &http1,
		ReadTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		ConnState: newScrapers().connState,
		ErrorLog:  log.New(serverLog{messages}, "", 0),
	}
}

// Serve serves metrics, and nothing else, on ln until stop is called. config is the file
// that says to whom, empty for everybody; it is read again for each connection and
// request.
func Serve(ln net.Listener, metrics http.Handler, config string, log *slog.Logger) (stop func()) {
	messages := newLog(log)
	server := newServer(metrics, messages)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer ln.Close() // also where it does not come to serving
		err := web.Serve(ln, server, &web.FlagConfig{WebConfigFile: &config}, messages)
		if !errors.Is(err, http.ErrServerClosed) {
			log.Error("no metrics are served", "error", err)
		}
	}()
	return func() {
		server.Close()
		<-done
	}
}
