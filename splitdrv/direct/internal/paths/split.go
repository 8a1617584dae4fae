package paths

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// Config is the configuration of a Split.
type Config struct {
	Log *slog.Logger
	// Ring is the size in bytes of the ring of frames for each direct path, and, while there
	// are direct paths, for each queue of the path through the I/O unit; default 1 MiB. That
	// of a path whose frames wait is enlarged up to holds times this size.
	Ring int
}

const (
	defaultRing = 1 << 20
	minRing     = 4 * maxRecord
	// further is the factor by which a ring can grow for the frames of closed paths.
	further = 16
	// holds is the factor by which the ring of a path can grow while frames wait. All rings of
	// paths together need at most reserve times the usual size more than without that.
	holds   = 8
	reserve = 2 * holds
)

// Split divides the queues of a netdevice between paths.
type Split struct {
	shared
	ring   int
	queues []*queue
	ports  []messaging.Port

	// mu is held while paths change. It is taken before the queues' locks.
	mu    sync.Mutex
	paths []*route // open paths
}

// New divides the queues of a netdevice. The ports remain the caller's, and must stay open
// until the Split is closed.
func New(ports []messaging.Port, cfg Config) (*Split, error) {
	s := &Split{shared: shared{log: cfg.Log, grace: grace}, ring: cfg.Ring}
	s.flows.began = time.Now()
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.ring == 0 {
		s.ring = defaultRing
	}
	s.ring = max(s.ring, minRing)
	s.spare.Store(reserve * int64(s.ring))
	if len(ports) == 0 || len(ports) > protocol.MaxMarkerQueues {
		return nil, fmt.Errorf("paths: a netdevice of %d queues", len(ports))
	}
	for i, port := range ports {
		q := &queue{shared: &s.shared, number: i, port: port, fd: port.FD()}
		q.lends, _ = port.(messaging.ZeroCopyPort)
		var err error
		if q.uplink, err = newReader(&s.count.full); err == nil {
			q.reader.Store(q.uplink)
			q.uplink.rights.Store(1)
			s.queues = append(s.queues, q)
			q.uplink.uplink = true
			q.uplink.flows.Store(true)
			err = q.uplink.control(unix.EPOLL_CTL_ADD, q.fd, unix.EPOLLIN)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("paths: queue %d of the netdevice: %w", i, err), s.Close())
		}
	}
	for _, q := range s.queues {
		in := input{reader: q.uplink, shared: &s.shared, queues: []*queue{q}}
		u := &uplinkPort{input: in, queue: q, all: s.queues}
		if q.lends == nil {
			s.ports = append(s.ports, u)
		} else {
			s.ports = append(s.ports, &zeroCopyPort{uplinkPort: u})
		}
	}
	s.ownRoom = s.queues[0].roomIsReadable()
	s.used.Store(int32(len(ports)))
	return s, nil
}

// Uplink returns the ports of the path through the I/O unit, one for each queue. All
// sessions use them, one after the other.
func (s *Split) Uplink() []messaging.Port { return s.ports }

// Counts returns the counters of all paths together.
func (s *Split) Counts() SplitCounts {
	return SplitCounts{UplinkFull: s.count.full.Load(), Markers: s.count.markers.Load()}
}

// Close releases the Split. All paths must be closed, and its ports must not be used any
// more.
func (s *Split) Close() error {
	s.ended.Store(true)
	var errs []error
	for _, q := range s.queues {
		q.mu.Lock()
		if q.timer != nil {
			q.timer.Stop()
		}
		q.mu.Unlock()
		errs = append(errs, q.uplink.close())
	}
	s.queues = nil
	return errors.Join(errs...)
}

// SetQueues sets the number of queues, the first ones, of the path through the I/O unit. The
// netdevice must use no others.
func (s *Split) SetQueues(n int) {
	n = min(max(n, 1), len(s.queues))
	s.mu.Lock()
	s.change(func() {
		s.used.Store(int32(n))
		for _, q := range s.queues[n:] {
			q.give(q.uplink)
			s.addLost(q.uplink.ring.moveTo(s.uplinkRing))
		}
	})
	s.mu.Unlock()
	for _, p := range s.expecting() {
		p.probes.look(n, p.peer.Probed)
		p.markers.look(n, p.peer.Arrived)
	}
}

// uplinkRing returns the ring in which frames of a queue of the netdevice wait for the path
// through the I/O unit, and its largest size in bytes.
func (s *Split) uplinkRing(queue int) (*ring, int) {
	return &s.queues[min(queue, int(s.used.Load())-1)].uplink.ring, further * s.ring
}

// change calls do while no frame is read, publishes the new paths, and wakes all readers.
func (s *Split) change(do func()) {
	for _, q := range s.queues {
		q.mu.Lock()
	}
	do()
	t := newTable(s.paths)
	s.table.Store(t)
	for _, q := range s.queues {
		r := q.reader.Load()
		if !r.may() {
			q.handOver()
		}
		if t != nil && !q.reader.Load().wants.Load() {
			q.arm()
		}
		q.reader.Load().wake()
		q.uplink.wake()
	}
	for _, q := range s.queues {
		q.mu.Unlock()
	}
}

// expect publishes the paths whose markers may arrive.
func (s *Split) expect() {
	if len(s.paths) == 0 {
		s.expected.Store(nil)
		return
	}
	all := slices.Clone(s.paths)
	s.expected.Store(&all)
}

func (s *Split) forget(p *route) {
	s.paths = slices.DeleteFunc(s.paths, func(o *route) bool { return o == p })
	s.expect()
}

// tidy releases the ring and the descriptors of a closed path.
func (s *Split) tidy(p *route) {
	p.reader.ring.close()
	if err := p.reader.close(); err != nil {
		s.log.Debug("close a direct path", "error", err)
	}
}
