package vhostuser

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// Open makes a device. If the back end is the server, the socket exists when Open returns.
func Open(cfg Config) (*Device, error) {
	if cfg.Pairs < 1 || cfg.Pairs > maxPairs {
		return nil, fmt.Errorf("vhost-user: %d pairs of rings; there can be 1 to %d", cfg.Pairs, maxPairs)
	}
	d := &Device{
		cfg: cfg, pairs: cfg.Pairs, offer: offered(cfg.Offloads, cfg.Pairs), active: cfg.Pairs,
		shared: shared{failed: make(chan error, 1), lendFrom: lendFrom}, lender: newLender(),
		heard: make(chan struct{}), done: make(chan struct{}),
	}
	d.granted.Store(uint32(cfg.Offloads))
	d.status.Path, d.status.Client = cfg.Address.Path, cfg.Address.Client
	for i := range cfg.Pairs {
		q, err := newQueue(d.lender)
		if err != nil {
			return nil, errors.Join(err, d.closeQueues())
		}
		d.queues = append(d.queues, q)
		for side := range 2 {
			d.rings = append(d.rings, &vring{number: 2*i + side, shared: &d.shared, kick: -1, call: -1})
		}
	}
	d.lender.rings = d.rings
	next, closeSocket, err := cfg.Address.open()
	if err != nil {
		return nil, errors.Join(err, d.closeQueues())
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = func() {
		cancel()
		closeSocket()
	}
	go d.run(ctx, next)
	return d, nil
}

// Close ends the connection and removes the socket. The queues must not be used any more.
func (d *Device) Close() error {
	d.stop()
	<-d.done
	return d.closeQueues()
}

func (d *Device) closeQueues() error {
	var errs []error
	for _, q := range d.queues {
		errs = append(errs, q.close())
	}
	d.queues = nil
	return errors.Join(errs...)
}

const (
	// Pauses between a failed connection and the next one.
	minPause = 50 * time.Millisecond
	maxPause = time.Second
)

// run serves one front end after the other.
func (d *Device) run(ctx context.Context, next func(context.Context) (*net.UnixConn, error)) {
	defer close(d.done)
	pause, last := minPause, ""
	for ctx.Err() == nil {
		c, err := next(ctx)
		if err == nil {
			err = d.serve(ctx, c)
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			pause, last = minPause, ""
		} else {
			d.note(func(s *Status) { s.LastError = err.Error() })
			if err.Error() != last { // log a repeated error once
				d.log.Log(d.cfg.Log, slog.LevelWarn, "no vhost-user front end", "socket", d.cfg.Address.Path, "error", err)
			}
			last = err.Error()
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		if err != nil {
			pause = min(2*pause, maxPause)
		}
	}
}

// serve serves one front end until it disconnects or fails.
func (d *Device) serve(ctx context.Context, c *net.UnixConn) error {
	who := peerOf(c)
	d.note(func(s *Status) {
		s.FrontEnd = who
		s.Connections++
		s.LastError = ""
	})
	d.log.Log(d.cfg.Log, slog.LevelInfo, "vhost-user front end connected", "socket", d.cfg.Address.Path, "peer", who)
	select {
	case <-d.failed: // of the connection before
	default:
	}
	over := make(chan error, 1)
	f := &frontEnd{d: d, conn: c}
	go func() { over <- f.serve() }()
	var err error
	select {
	case err = <-over:
		select {
		case err = <-d.failed: // the reason for the end
		default:
		}
		c.Close()
	case err = <-d.failed:
		c.Close()
		<-over
	case <-ctx.Done():
		c.Close()
		<-over
	}
	d.note(func(s *Status) { s.FrontEnd, s.Features, s.MTU = "", nil, 0 })
	d.log.Log(d.cfg.Log, slog.LevelInfo, "vhost-user front end gone", "socket", d.cfg.Address.Path, "peer", who)
	return err
}
