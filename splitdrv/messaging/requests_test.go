package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// TestHeldRequests holds a request back for longer than the test may last. The requests behind
// it must not be carried out before it, but keep-alives must be answered, and the session must
// be able to end.
func TestHeldRequests(t *testing.T) {
	var mu sync.Mutex
	var judged, done []protocol.CfgType
	note := func(list *[]protocol.CfgType, c protocol.CfgType) {
		mu.Lock()
		defer mu.Unlock()
		*list = append(*list, c)
	}
	h, p := newRawPeer(t, messaging.Config{
		OnRequest: func(c protocol.CfgType, _ []byte) (protocol.CfgStatus, []byte) {
			note(&done, c)
			return protocol.CfgOK, nil
		},
		Pace: func(c protocol.CfgType, _ []byte) time.Duration {
			note(&judged, c)
			if c == protocol.CfgMTU {
				return time.Hour
			}
			return 0
		},
	})
	ask := func(c protocol.CfgType) {
		p.send(protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{Type: c}))
	}
	answered := func(c protocol.CfgType) {
		t.Helper()
		msg := p.function(protocol.FuncCfgUtilReply)
		m, err := protocol.DecodeCfgUtilReply(msg)
		p.ok(err)
		if m.Type != c {
			t.Fatalf("the answer is about %v, want %v", m.Type, c)
		}
		p.recycle(msg)
	}
	ask(protocol.CfgMAC)
	answered(protocol.CfgMAC)
	ask(protocol.CfgMTU)
	ask(protocol.CfgMAC)
	for range 20 {
		ask(protocol.CfgKeepAlive)
		answered(protocol.CfgKeepAlive)
	}
	mu.Lock()
	if !slices.Equal(judged, []protocol.CfgType{protocol.CfgMAC, protocol.CfgMTU}) ||
		!slices.Equal(done, []protocol.CfgType{protocol.CfgMAC}) {
		t.Errorf("the pace was asked about %v; carried out were %v", judged, done)
	}
	mu.Unlock()
	if s := h.conn.Stats(); s.RequestsThrottled != 1 {
		t.Errorf("%d requests are counted as held", s.RequestsThrottled)
	}
	if err := h.conn.Err(); err != nil {
		t.Error(err)
	}
}

// TestSignOfLifeOfWhoHangs sends a keep-alive while a request is carried out, which may take
// for ever. The keep-alive must not be answered before the request is done.
func TestSignOfLifeOfWhoHangs(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	h, p := newRawPeer(t, messaging.Config{
		OnRequest: func(protocol.CfgType, []byte) (protocol.CfgStatus, []byte) {
			close(entered)
			<-release
			return protocol.CfgOK, nil
		},
	})
	// A message may arrive before it is counted as sent.
	until(t, func() error {
		if n := h.conn.Stats().ControlSent; n < p.got {
			return fmt.Errorf("%d messages of %d are counted", n, p.got)
		}
		return nil
	})
	before := h.conn.Stats()
	for i, c := range []protocol.CfgType{protocol.CfgMAC, protocol.CfgKeepAlive} {
		p.send(protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{Type: c}))
		if i == 0 {
			<-entered
		}
	}
	look := h.conn.Look()
	until(t, func() error {
		if n := h.conn.Stats().ControlReceived - before.ControlReceived; n != 2 {
			return fmt.Errorf("%d requests of 2 have come", n)
		}
		return look()
	})
	if n := h.conn.Stats().ControlSent - before.ControlSent; n != 0 {
		t.Errorf("%d messages from who hangs", n)
	}
	close(release)
	for _, want := range []protocol.CfgType{protocol.CfgMAC, protocol.CfgKeepAlive} {
		msg := p.function(protocol.FuncCfgUtilReply)
		m, err := protocol.DecodeCfgUtilReply(msg)
		p.ok(err)
		if m.Type != want {
			t.Errorf("the answer is about %v, want %v", m.Type, want)
		}
		p.recycle(msg)
	}
}

// TestSignOfLifeThatCannotBeSent makes the device refuse the reply to a keep-alive. The session
// must end, but not with a protocol error of the peer.
func TestSignOfLifeThatCannotBeSent(t *testing.T) {
	dev := &hooked{}
	h, p := newRawPeer(t, messaging.Config{Device: dev, Protection: messaging.ProtectRegion})
	refused := errors.New("refused on purpose")
	dev.set(hooks{refuse: func(f protocol.Function) error {
		if f == protocol.FuncCfgUtilReply {
			return refused
		}
		return nil
	}})
	p.send(protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{Type: protocol.CfgKeepAlive}))
	select {
	case <-h.conn.Done():
	case <-deadline(t).Done():
		t.Fatal("the session goes on")
	}
	err := h.conn.Err()
	if broken := (*messaging.ProtocolError)(nil); !errors.Is(err, refused) || errors.As(err, &broken) {
		t.Errorf("the session has ended for %v", err)
	}
}

// TestPauseBesideHeldRequests pauses a session while the peer holds back as many configuration
// requests as can be sent to it. The pause must not wait for them.
func TestPauseBesideHeldRequests(t *testing.T) {
	n := fabrictest.New()
	a := newEndpoint(t, n, "a", patient(messaging.Config{}))
	b := newEndpoint(t, n, "b", patient(messaging.Config{
		Pace: func(protocol.CfgType, []byte) time.Duration { return time.Hour },
	}))
	connect(t, a, b)
	for _, h := range []*endpoint{a, b} {
		if err := h.conn.Start(h.ports); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(deadline(t))
	var asking sync.WaitGroup
	before := b.conn.Stats().ControlReceived
	for range 2 * messaging.MaxRequests {
		asking.Go(func() { _, _ = a.conn.Request(ctx, protocol.CfgStatsRead, nil) })
	}
	until(t, func() error {
		if got := b.conn.Stats().ControlReceived - before; got < messaging.MaxRequests-1 {
			return fmt.Errorf("%d messages have come", got)
		}
		return nil
	})
	if err := a.conn.Pause(deadline(t)); err != nil {
		t.Error(err)
	}
	a.conn.Resume()
	cancel()
	asking.Wait()
}

// TestHeldRequestsKeepTheirOrder holds some requests back for a moment. Pace must be called
// once for each request, and all requests must be carried out in the order of their arrival.
func TestHeldRequestsKeepTheirOrder(t *testing.T) {
	const requests = 200
	var judged, done []byte // used by the configuration goroutine until all requests are answered
	_, p := newRawPeer(t, messaging.Config{
		OnRequest: func(_ protocol.CfgType, data []byte) (protocol.CfgStatus, []byte) {
			done = append(done, data[0])
			return protocol.CfgOK, nil
		},
		Pace: func(_ protocol.CfgType, data []byte) time.Duration {
			judged = append(judged, data[0])
			return time.Duration(data[0]%3) * 100 * time.Microsecond
		},
	})
	var want []byte
	ask := func() {
		i := len(want)
		want = append(want, byte(i))
		p.send(protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{TransactionContext: uint64(i),
			Type: protocol.CfgVLAN, Data: want[i:]}))
	}
	for range messaging.MaxRequests {
		ask()
	}
	for i := range uint64(requests) {
		msg := p.function(protocol.FuncCfgUtilReply)
		m, err := protocol.DecodeCfgUtilReply(msg)
		p.ok(err)
		if m.TransactionContext != i {
			t.Fatalf("the answer is to request %d, want %d", m.TransactionContext, i)
		}
		p.recycle(msg)
		if len(want) < requests {
			ask()
		}
	}
	if !slices.Equal(judged, want) || !slices.Equal(done, want) {
		t.Errorf("the pace was asked about %v; carried out were %v", judged, done)
	}
}

// TestSignsOfLifeTooOften has a peer send keep-alives as fast as they are answered. The replies
// must be rate-limited.
func TestSignsOfLifeTooOften(t *testing.T) {
	const asks, burst, rate = 3000, 200, 1000
	h, p := newRawPeer(t, messaging.Config{})
	begun := time.Now()
	for i := range asks {
		p.send(protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{Type: protocol.CfgKeepAlive}))
		p.recycle(p.function(protocol.FuncCfgUtilReply))
		if most := burst + rate*time.Since(begun).Seconds(); float64(i) > most {
			t.Fatalf("%d were answered, at most %.0f", i+1, most)
		}
	}
	until(t, func() error {
		if err := h.conn.Err(); err != nil || h.conn.Stats().RequestsThrottled == 0 {
			return fmt.Errorf("%d were held back; %w", h.conn.Stats().RequestsThrottled, err)
		}
		return nil
	})
}
