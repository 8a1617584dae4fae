package iounit

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/limit"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// TestRequestsOfAKey checks that all sessions of one key, former and new ones, share a rate limit
// for requests, and that another key has its own.
func TestRequestsOfAKey(t *testing.T) {
	u := newUnit(t, Config{})
	attach := func(owner, name string) *host {
		return &host{
			owner: owner, key: owner + "/" + name, limits: limit.PublicKey(sha256.Sum256([]byte(owner))),
			peer: func() session.Identity { return session.Identity{Name: owner} },
		}
	}
	a, b := attach("one", "a"), attach("two", "b")
	mac := []byte{2, 0, 0, 0, 0, 1}
	began, n := time.Now(), 0
	for u.paced(a, protocol.CfgMAC, mac) == 0 {
		n++
	}
	// The limit has been refilled since the beginning.
	const atOnce = leastBurst * costSession / costChange
	if most := atOnce + int(time.Since(began).Seconds()*requestRate/costChange) + 1; n < atOnce || n > most {
		t.Errorf("%d changes are carried out at once, not %d to %d", n, atOnce, most)
	}
	if wait := u.paced(attach("one", "c"), protocol.CfgLinkState, mac); wait <= 0 {
		t.Error("another session of the key does not wait")
	}
	if wait := u.paced(b, protocol.CfgMAC, mac); wait != 0 {
		t.Errorf("another key waits %v", wait)
	}
}

// TestRequestsCost checks that requests that change a setting cost more than others.
func TestRequestsCost(t *testing.T) {
	data := []byte{1}
	for _, tt := range []struct {
		t    protocol.CfgType
		data []byte
		want int
	}{
		{protocol.CfgMAC, data, costChange}, {protocol.CfgMAC, nil, costRead},
		{protocol.CfgLinkState, data, costChange}, {protocol.CfgLinkState, nil, costRead},
		{protocol.CfgFilter, data, costChange}, {protocol.CfgOffloads, data, costChange},
		{protocol.CfgMTU, data, costChange}, {protocol.CfgMTU, nil, costRead}, {protocol.CfgVLAN, data, costChange},
		{protocol.CfgVLAN, nil, costRead},
		{protocol.CfgStatsRead, nil, costRead}, {protocol.CfgReset, nil, costReset}, {protocol.CfgType(99), data, costRead},
	} {
		if got := costOf(tt.t, tt.data); got != tt.want {
			t.Errorf("%v with %d bytes costs %d, want %d", tt.t, len(tt.data), got, tt.want)
		}
	}
}
