// Package paths divides the queues of a host's netdevice between the path through the
// I/O unit and direct paths to other hosts.
//
// Frames of a flow never overtake each other when their path changes, in either
// direction: they are held while what went before is on its way. On the way to a
// direct path markers follow the frames through each queue of the I/O unit's path, and
// the peer says when they have come. On the way back the owner of the path has the
// direct connection run dry before it closes the path.
//
// [Split], [Path] and the queues and readers refer to each other, and so do their files:
// a change of paths is one step under the locks of all queues (Split.change), and each
// frame passes all four in one call.
package paths

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// Config is what a Split is made with.
type Config struct {
	Log *slog.Logger
	// Ring is how many bytes of frames are kept for each direct path, and for each
	// queue of the path through the I/O unit while there are direct paths. 0 is a
	// mebibyte.
	Ring int
}

const (
	defaultRing = 1 << 20
	minRing     = 4 * maxRecord
	// further bounds how many times that a ring grows for what closed paths leave.
	further = 16
)

// Split is a netdevice whose queues are divided.
type Split struct {
	log    *slog.Logger
	ring   int
	grace  time.Duration
	queues []*queue
	ports  []messaging.Port
	// ownRoom says that each queue has a descriptor of its own that tells of room, as those
	// of a vhost-user port. A frame must not go into another queue than the writer waits for.
	// Nor has it to: no kernel moves flows there.
	ownRoom bool

	// mu is held while paths change. It is taken before the queues' locks.
	mu    sync.Mutex
	paths []*Path // that are not closed

	table    atomic.Pointer[table]   // nil: no path is open
	expected atomic.Pointer[[]*Path] // whose markers may come; nil: none
	used     atomic.Int32            // queues of the path through the I/O unit
	ended    atomic.Bool
	failing  atomic.Bool // a warning was logged
	flows    flowQueues

	count struct {
		full, markers atomic.Uint64
	}
}

// SplitCounts are counted for all paths together.
type SplitCounts struct {
	UplinkFull uint64 // frames for the I/O unit that were dropped because it took none for long
	Markers    uint64 // markers that no open path expects
}

// New divides the queues, which stay the caller's and must outlive the Split.
func New(ports []messaging.Port, cfg Config) (*Split, error) {
	s := &Split{log: cfg.Log, ring: cfg.Ring, grace: grace}
	s.flows.began = time.Now()
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.ring == 0 {
		s.ring = defaultRing
	}
	if s.ring = max(s.ring, minRing); len(ports) == 0 || len(ports) > protocol.MaxMarkerQueues {
		return nil, fmt.Errorf("paths: a netdevice of %d queues", len(ports))
	}
	for i, port := range ports {
		q := &queue{split: s, number: i, port: port, fd: port.FD()}
		var err error
		if q.uplink, err = newReader(s, nil, []*queue{q}); err == nil {
			q.reader.Store(q.uplink)
			q.uplink.rights.Store(1)
			s.queues = append(s.queues, q)
			s.ports = append(s.ports, &uplinkPort{reader: q.uplink, queue: q})
			err = q.uplink.control(unix.EPOLL_CTL_ADD, q.fd, unix.EPOLLIN)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("paths: queue %d of the netdevice: %w", i, err), s.Close())
		}
	}
	s.ownRoom = s.queues[0].roomIsReadable()
	s.used.Store(int32(len(ports)))
	return s, nil
}

// Uplink are the ports of the path through the I/O unit, one for each queue. Sessions
// follow each other on them.
func (s *Split) Uplink() []messaging.Port { return s.ports }

// Counts are the counts of all paths together.
func (s *Split) Counts() SplitCounts {
	return SplitCounts{UplinkFull: s.count.full.Load(), Markers: s.count.markers.Load()}
}

// Close releases what the Split has. Nothing may use its ports any more, and all paths
// are closed.
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

// SetQueues says how many queues, the first ones, the path through the I/O unit has
// from now on. The netdevice puts frames into no other.
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

// uplinkRing is where what came from a queue of the netdevice's waits for the path
// through the I/O unit, and how large that can become.
func (s *Split) uplinkRing(queue int) (*ring, int) {
	return &s.queues[min(queue, int(s.used.Load())-1)].uplink.ring, further * s.ring
}

func (s *Split) addLost(frames int) { s.count.full.Add(uint64(frames)) }

// change changes paths while no frame is read, and has all look again.
func (s *Split) change(do func()) {
	for _, q := range s.queues {
		q.mu.Lock()
	}
	do()
	t := newTable(s.paths)
	s.table.Store(t)
	for _, q := range s.queues {
		r := q.reader.Load()
		if r.path != nil && !r.may() {
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

// Open makes a path to another host. Frames go on through the I/O unit until Enter.
func (s *Split) Open(peer Peer) (*Path, error) {
	if err := peer.check(); err != nil {
		return nil, fmt.Errorf("paths: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.paths {
		for _, m := range peer.MACs {
			if slices.Contains(other.peer.MACs, m) {
				return nil, fmt.Errorf("paths: address %v: %w", m, ErrTaken)
			}
		}
	}
	p := &Path{split: s, peer: peer, own: protocol.NewMACSet(peer.Own), theirs: protocol.NewMACSet(peer.MACs)}
	p.holdLimit = s.ring * 3 / 4 // the rest is for what comes before the sender has caught up
	var err error
	if p.reader, err = newReader(s, p, s.queues); err != nil {
		return nil, fmt.Errorf("paths: %w", err)
	}
	p.reader.ring.setShut(true)
	for _, q := range s.queues {
		q.uplink.ring.open(s.ring)
	}
	p.port = directPort{reader: p.reader, path: p}
	s.flows.used.Store(true)
	s.change(func() {
		s.paths = append(s.paths, p)
		s.expect()
	})
	return p, nil
}

// expect publishes whose markers may come.
func (s *Split) expect() {
	if len(s.paths) == 0 {
		s.expected.Store(nil)
		return
	}
	all := slices.Clone(s.paths)
	s.expected.Store(&all)
}

func (s *Split) expecting() []*Path {
	if all := s.expected.Load(); all != nil {
		return *all
	}
	return nil
}

// arrived enters a marker that came through a queue of this host's.
func (s *Split) arrived(frame []byte, queue int) {
	if m, ok := protocol.DecodeMarker(frame); ok {
		for _, p := range s.expecting() {
			a, then := &p.markers, p.peer.Arrived
			switch m.Nonce {
			case p.peer.In.Marker:
			case p.peer.In.Probe:
				a, then = &p.probes, p.peer.Probed
			default:
				continue
			}
			if a.saw(m, queue, int(s.used.Load())) {
				then()
			}
			return
		}
	}
	s.count.markers.Add(1)
}

// warn logs what the kernel refuses, once: nothing is lost by it but speed.
func (s *Split) warn(what string, q *queue, err error) {
	if !s.failing.Swap(true) && !errors.Is(err, os.ErrClosed) {
		s.log.Warn("direct paths are slower", "to", what, "queue", q.number, "reason", err)
	}
}

// forget takes a path out.
func (s *Split) forget(p *Path) {
	s.paths = slices.DeleteFunc(s.paths, func(o *Path) bool { return o == p })
	s.expect()
}

// tidy releases what a closed path had, and the rings of the path through the I/O unit
// if nobody needs them any more.
func (s *Split) tidy(p *Path) {
	p.reader.ring.close()
	if err := p.reader.close(); err != nil {
		s.log.Debug("close a direct path", "reason", err)
	}
}
