package main

import (
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// maxScrapers is how many connections there are to the metrics at a time. They are
// for whoever reaches their address, who must not use up the descriptors that this
// process needs for sessions.
const maxScrapers = 64

// metricsServer serves metrics, and nothing else.
func metricsServer(metrics http.Handler) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	var open atomic.Int32
	return &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
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
