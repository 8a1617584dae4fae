package paths

import (
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/protocol"
)

// shared is the state that all queues and ports of a Split share.
type shared struct {
	log   *slog.Logger
	grace time.Duration
	// ownRoom is true if each queue has a separate descriptor that shows whether it has room,
	// like those of a vhost-user port. A writer must then write only to the queue that it
	// waits for. Flows need not be kept in their queues, because no kernel moves them.
	ownRoom bool

	table    atomic.Pointer[table]    // nil: no path is open
	expected atomic.Pointer[[]*route] // paths whose markers may arrive; nil: none
	used     atomic.Int32             // number of queues of the path through the I/O unit
	ended    atomic.Bool
	spare    atomic.Int64 // bytes for rings of paths that are larger than usual
	giveUp   func(*route) // Split.giveUp; set before there is a table
	failing  atomic.Bool  // a warning was logged
	flows    flowQueues

	count struct {
		full, markers atomic.Uint64
	}
}

// SplitCounts has the counters of all paths together.
type SplitCounts struct {
	UplinkFull uint64 // frames to the I/O unit dropped because it accepted none for a long time
	Markers    uint64 // markers that no open path expects
}

func (s *shared) addLost(frames int) { s.count.full.Add(uint64(frames)) }

func (s *shared) expecting() []*route {
	if all := s.expected.Load(); all != nil {
		return *all
	}
	return nil
}

// arrived records a marker that has arrived in a queue of this host.
func (s *shared) arrived(frame []byte, queue int) {
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

// warn logs an error of the kernel once. Only speed is lost by it.
func (s *shared) warn(what string, queue int, err error) {
	if !s.failing.Swap(true) && !errors.Is(err, os.ErrClosed) {
		s.log.Warn("direct paths are slower", "to", what, "queue", queue, "error", err)
	}
}
