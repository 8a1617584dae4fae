package iounit

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestEnter(t *testing.T) {
	u := &Unit{cfg: Config{MaxHosts: 2}, hosts: map[string]*attachment{}}
	start := time.Now()
	comer := func(key string, n int) (*attachment, *error) {
		reason := new(error)
		return &attachment{
			key: key, gone: make(chan struct{}), since: start.Add(time.Duration(n) * time.Second),
			cancel: func(err error) { *reason = err },
		}, reason
	}
	a1, why1 := comer("a", 1)
	a2, _ := comer("a", 2)
	a3, why3 := comer("a", 3)
	b, _ := comer("b", 4)
	c, _ := comer("c", 5)
	ctx := t.Context()
	if err := errors.Join(u.enter(ctx, a1), u.enter(ctx, b)); err != nil {
		t.Fatal(err)
	}
	if err := u.enter(ctx, c); !errors.Is(err, errFull) {
		t.Errorf("a third host of two: %v", err)
	}

	a1.cancel = func(err error) { // which is what ends a session
		*why1 = err
		u.leave(a1)
		close(a1.gone)
	}
	if err := u.enter(ctx, a3); err != nil || u.hosts["a"] != a3 || !errors.Is(*why1, errReplaced) {
		t.Errorf("the host came again: %v; the old session ended by: %v", err, *why1)
	}
	// One that waited all the time.
	if err := u.enter(ctx, a2); !errors.Is(err, errReplaced) || u.hosts["a"] != a3 || *why3 != nil {
		t.Errorf("an older session in place of the latest: %v", err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	a4, _ := comer("a", 4)
	if err := u.enter(done, a4); !errors.Is(err, context.Canceled) {
		t.Errorf("the I/O unit ends: %v", err)
	}
}
