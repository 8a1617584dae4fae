package paths

import (
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/protocol"
)

// shared is what all queues and ports of a Split have in common.
type shared struct {
	log   *slog.Logger
	grace time.Duration
	// ownRoom says that each queue has a descriptor of its own that tells of room, as those
	// of a vhost-user port. A frame must not go into another queue than the writer waits for.
	// Nor has it to: no kernel moves flows there.
	ownRoom bool

	table    atomic.Pointer[table]    // nil: no path is open
	expected atomic.Pointer[[]*route] // whose markers may come; nil: none
	used     atomic.Int32             // queues of the path through the I/O unit
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

func (s *shared) addLost(frames int) { s.count.full.Add(uint64(frames)) }

func (s *shared) expecting() []*route {
	if all := s.expected.Load(); all != nil {
		return *all
	}
	return nil
}

// arrived enters a marker that came through a queue of this host's.
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

// warn logs what the kernel refuses, once: nothing is lost by it but speed.
func (s *shared) warn(what string, queue int, err error) {
	if !s.failing.Swap(true) && !errors.Is(err, os.ErrClosed) {
		s.log.Warn("direct paths are slower", "to", what, "queue", queue, "error", err)
	}
}
