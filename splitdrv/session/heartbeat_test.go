package session

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/splitdrv/session/internal/identity"
)

// written counts the writes to it.
type written struct {
	net.Conn
	n atomic.Int32
}

func (w *written) Write(b []byte) (int, error) {
	w.n.Add(1)
	return len(b), nil
}

// TestVouchRests counts the calls of look. While the peer is vouched for, they must happen only
// when a heartbeat may be due, and otherwise in each part.
func TestVouchRests(t *testing.T) {
	for peer, some := range map[role]int32{roleHost: 0, roleUnit: 1} {
		t.Run("of "+peer.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const part = 7 * time.Second // an interval of no other task
				var sent written
				var looks atomic.Int32
				c := &Conn{authentication: authentication{security: &Security{}, peerRole: peer}, stream: &sent}
				var tick ticker.Ticker
				c.heartbeats.task.Store(tick.Every(part, func(t ticker.Tick) int {
					looks.Add(1)
					return c.look(t)
				}))
				defer c.heartbeats.task.Load().Stop()
				pass := func(parts int, wantLooks, wantSent int32) {
					t.Helper()
					time.Sleep(time.Duration(parts) * part)
					synctest.Wait()
					if l, n := looks.Swap(0), sent.n.Swap(0); l != wantLooks || n != wantSent {
						t.Errorf("%d looks and %d heartbeats in %d parts, want %d and %d", l, n, parts, wantLooks, wantSent)
					}
				}
				pass(unneeded, unneeded, unneeded)
				c.Vouch(true)
				pass(1, 1, some)
				pass(2*unneeded, 2, 2*some)
				c.Vouch(false)
				pass(2, 2, 3) // one heartbeat is sent at once
				c.Vouch(true)
				pass(unneeded, 2, some)
			})
		})
	}
}

// TestVouchExpires expects no look to be left out shortly before the peer's certificate expires, also while
// the peer is vouched for.
func TestVouchExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 5 * time.Second
		c := &Conn{
			authentication: authentication{security: &Security{}, peerRole: roleHost}, stream: &written{}, peerTimeout: timeout,
		}
		c.heartbeats.vouched.Store(true)
		for _, tt := range []struct {
			left time.Duration
			rest int
		}{{timeout + time.Second, unneeded - 2}, {timeout - time.Second, 0}} {
			c.verdict.Store(&identity.Verdict{Expires: time.Now().Add(tt.left)})
			if rest := c.look(ticker.Tick{N: 1}); rest != tt.rest {
				t.Errorf("%v before: %d looks are left out, want %d", tt.left, rest, tt.rest)
			}
		}
	})
}
