package host

import (
	"slices"
	"sync"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/paths"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// How long the parts of a direct connection's life may take.
const (
	directRemind = 5 * time.Millisecond // until markers are sent again; it doubles,
	directAgain  = time.Second / 2      // up to this
)

// directCommon is what all direct connections of a host have in common. It may be used by
// any goroutine.
type directCommon struct {
	cfg     *Config
	split   *paths.Split // nil: there are none, ever
	retired *retired
	running sync.WaitGroup // goroutines of connections

	mu      sync.Mutex  // guards what follows
	session *attachment // in use; nil: there is none
	settled bool        // its I/O unit knows what the netdevice has been set to
}

// inUse is the session in use, nil if there is none, and whether it is settled.
func (d *directCommon) inUse() (a *attachment, settled bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session, d.settled
}

// messaging is the configuration of a connection's channels.
func (d *directCommon) messaging(m *session.Direct) messaging.Config {
	c := d.cfg.messaging(m.Mode)
	has := func(feature string) bool { return slices.Contains(m.Features, feature) }
	c.Queues, c.MTU, c.PeerPools, c.MaxPools = 1, m.MTU, m.Pools, m.Pools
	c.Pools = c.Pools[:min(len(c.Pools), m.Pools)]
	c.LatencyQueue, c.LatencyPools, c.Assigned = false, nil, nil
	c.NoPack = !has(protocol.FeaturePack)
	c.Invalidation, c.OneTouch = has(protocol.FeatureWindow), has(protocol.FeatureOneTouch)
	c.Budget, c.ZeroCopy = d.cfg.Direct.Budget, nil // frames of several paths are copied
	c.Bind = messaging.NewBinding(*m.Secret, m.First)
	return c
}
