package direct

import (
	"slices"
	"sync"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/direct/internal/paths"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// Pauses before markers are sent again: remindAfter at first, doubled up to remindMost.
const (
	remindAfter = 5 * time.Millisecond
	remindMost  = time.Second / 2
)

// shared is the state that all direct connections of a host share. Any goroutine may
// use it.
type shared struct {
	cfg     *Config
	split   *paths.Split   // nil: direct connections are disabled
	running sync.WaitGroup // goroutines of connections

	mu      sync.Mutex // guards the fields below
	session Session    // session in use; nil: none
	settled bool       // its I/O unit has the settings of the netdevice
}

// inUse returns the session in use, or nil, and whether it is settled.
func (d *shared) inUse() (a Session, settled bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session, d.settled
}

// messaging returns the configuration of a connection's channels.
func (d *shared) messaging(m *session.Direct) messaging.Config {
	c := d.cfg.Messaging(m.Mode)
	has := func(feature string) bool { return slices.Contains(m.Features, feature) }
	c.Queues, c.MTU, c.PeerPools, c.MaxPools = 1, m.MTU, m.Pools, m.Pools
	c.Pools = c.Pools[:min(len(c.Pools), m.Pools)]
	c.LatencyQueue, c.LatencyPools, c.Assigned = false, nil, nil
	c.NoPack = !has(protocol.FeaturePack)
	c.Invalidation, c.OneTouch = has(protocol.FeatureWindow), has(protocol.FeatureOneTouch)
	c.KeySend = has(protocol.FeatureKeySend)
	c.Budget, c.ZeroCopy = d.cfg.Budget, nil // frames of several paths are copied
	c.ProvePath = has(protocol.FeaturePathMTU)
	c.Bind = messaging.NewBinding(*m.Secret, m.First)
	return c
}
