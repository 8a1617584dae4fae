// Package scrape serves metrics to Prometheus: by HTTP, or by HTTPS and to certain users,
// as specified by a file in the web-config format of Prometheus' exporter toolkit. It limits the
// work that all scrapers together can cause in this process, also before they are authenticated.
package scrape

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
	xrate "golang.org/x/time/rate"

	"github.com/splitnic/splitnic/internal/limit"
)

// maxScrapers is the maximum number of connections to the metrics at a time. Anyone who reaches
// the address can connect, and must not use up the descriptors that this process needs for
// sessions.
const maxScrapers = 64

// The limits for connections, and for requests, of all scrapers together. A connection may need a
// TLS handshake. A request may need the check of a password. It reads the state of each session,
// under locks that the session's own requests also take. Each scraper sends a request every few
// seconds.
const (
	rate  = 20 // per second in the long run
	burst = 20 // at once
)

// maxRequest is the maximum size of a request in bytes. Scrapers send a few hundred bytes.
const maxRequest = 16 << 10

// scrapers limits the connections and requests of all scrapers together.
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

// connState is the ConnState of the server. The server calls it, and waits for its return, before
// it does anything for a new connection or for the next request of a connection, even before
// authentication. At most maxScrapers connections wait.
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
	// With HTTP/2, a connection could have many requests at a time.
	var http1 http.Protocols
	http1.SetHTTP1(true)
	return &http.Server{
		Handler: mux, MaxHeaderBytes: maxRequest, Protocols: &http1,
		ReadTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		ConnState: newScrapers().connState,
		ErrorLog:  log.New(serverLog{messages}, "", 0),
	}
}

// Serve serves metrics, and nothing else, on ln until stop is called. config is the file with the
// permitted clients, empty for everybody. It is read again for each connection and request.
func Serve(ln net.Listener, metrics http.Handler, config string, log *slog.Logger) (stop func()) {
	messages := newLog(log)
	server := newServer(metrics, messages)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer ln.Close() // also if serving does not begin
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

// messages is the log of the server and of the toolkit. Scrapers cause its lines. So lines of level
// info or below are logged for debugging only, and the others once for each reason, so that they
// do not fill the log.
type messages struct {
	to    *slog.Logger
	lines *limit.Log
}

func newLog(to *slog.Logger) *slog.Logger { return slog.New(&messages{to: to, lines: new(limit.Log)}) }

// serverLog receives the lines of a server's ErrorLog, one in each call.
type serverLog struct{ to *slog.Logger }

// Write implements io.Writer.
func (l serverLog) Write(line []byte) (int, error) {
	l.to.Warn("serving metrics", "err", string(line[:max(len(line)-1, 0)]))
	return len(line), nil
}

// clientPort matches the part that differs between the lines about one scraper.
var clientPort = regexp.MustCompile(`:\d+: `)

// Enabled implements slog.Handler.
func (l *messages) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (l *messages) Handle(_ context.Context, r slog.Record) error {
	about := r.Message
	var args []any
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" { // the key that the toolkit uses
			a.Key = "error"
			about += clientPort.ReplaceAllString(a.Value.String(), ": ")
		}
		args = append(args, a)
		return true
	})
	if r.Level <= slog.LevelInfo {
		l.to.Debug("metrics: "+r.Message, args...)
		return nil
	}
	l.lines.Once(about, l.to, r.Level, "metrics: "+r.Message, args...)
	return nil
}

// WithAttrs implements slog.Handler. It is not used.
func (l *messages) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler. It is not used.
func (l *messages) WithGroup(string) slog.Handler { return l }
