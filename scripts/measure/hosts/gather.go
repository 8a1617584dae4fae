package hosts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"time"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/scripts/measure/results"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// load says how many hosts connect at once, and to which kind of ports.
type load struct {
	hosts  int
	ports  string
	stay   time.Duration // how long the hosts stay after all have connected
	flood  time.Duration // how long all of them send frames as fast as they can after that
	within time.Duration // limit for all hosts to connect
}

// result is what happened to the hosts of a load.
type result struct {
	allIn     time.Duration // until all hosts were connected at the same time; 0: they never were
	silent    int           // sessions that ended because one side received nothing from the other
	crowded   uint64        // connections that the I/O unit closed because there were too many
	refused   int           // hosts that were refused once or more
	again     int           // hosts that were refused more than once
	ended     map[string]uint64
	refusals  map[string]uint64
	reasons   map[string]uint64
	processor time.Duration // processor time of this process until all hosts were connected
	idle      idle          // use while the hosts stayed
	flood     *flood        // nil: there was no flood
}

// gather starts an I/O unit, makes the hosts connect to it, and returns what happened.
func gather(ctx context.Context, c load) (_ result, err error) {
	ctx, cancel := context.WithCancel(ctx)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	m := &gathering{network: fabrictest.New(), all: make(chan struct{}), log: log}
	port, free, err := portsOf(c.ports, &m.lan)
	if err != nil {
		cancel()
		return result{}, err
	}
	defer func() { err = errors.Join(err, free()) }()
	defer func() {
		cancel()
		err = errors.Join(err, m.tasks.Wait())
		for _, d := range m.netdevs {
			err = errors.Join(err, d.port.Close())
		}
	}()
	keys := make([]*session.Key, c.hosts+1) // the last one is the I/O unit's
	trust := &session.Trust{}
	for i := range keys {
		if keys[i], err = session.GenerateKey(); err != nil {
			return result{}, err
		}
		if err := trust.Add(fmt.Sprintf("h%d=%v", i, keys[i].Fingerprint())); err != nil {
			return result{}, err
		}
	}
	own := keys[c.hosts]
	address, err := m.serve(ctx, c.hosts, own, trust, port)
	if err != nil {
		return result{}, err
	}
	for i := range c.hosts {
		if err := m.host(i, keys[i], own.Fingerprint(), address); err != nil {
			return result{}, err
		}
	}
	began, before := time.Now(), used()
	for _, h := range m.hosts {
		m.tasks.Go(func() error { return h.Run(ctx) })
	}
	var r result
	late := time.NewTimer(c.within)
	defer late.Stop()
	select {
	case <-m.all:
		r.allIn = time.Since(began)
		r.processor = used() - before
		err = results.Pause(ctx, settle) // meanwhile garbage of connecting is collected
		end := beginIdle(c.hosts)
		late.Reset(c.stay)
		select {
		case <-late.C:
			if err == nil {
				r.idle, err = end()
				r.idle.registered = m.registered()
			}
			if err == nil && c.flood > 0 {
				r.flood, err = m.flood(ctx, c.flood)
			}
		case <-ctx.Done():
		}
	case <-late.C:
		r.processor = used() - before
	case <-ctx.Done():
	}
	m.count(&r)
	return r, errors.Join(err, ctx.Err())
}

// count counts what happened to the hosts.
func (m *gathering) count(r *result) {
	s := m.unit.Status()
	r.ended, r.refusals = s.Ended, s.Refusals
	r.silent = int(s.Ended["silent"])
	r.crowded = s.Refusals["too-many-handshakes"] + s.Refusals["too-many-handshakes-address"]
	m.said.mu.Lock()
	defer m.said.mu.Unlock()
	r.silent += m.said.silent
	r.reasons = maps.Clone(m.said.reasons)
	for _, h := range m.hosts {
		hs := h.Status()
		hs.Attempts -= max(hs.Sessions-1, 0)
		if hs.Attempts > 0 {
			r.refused++
		}
		if hs.Attempts > 1 {
			r.again++
		}
	}
}
