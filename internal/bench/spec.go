package bench

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/vnet"
)

// Kind is the kind of a measurement, which is the name of its command.
type Kind string

// The kinds.
const (
	BW  Kind = "bw"  // throughput
	Lat Kind = "lat" // half of a round trip
	PPS Kind = "pps" // frames per second, of small frames
)

// Bounds of a Spec.
const (
	MinSize     = vnet.MinFrame
	MaxSize     = protocol.MaxImmLength
	MaxPostList = 1024
	MaxTxDepth  = 4096
	MaxDuration = time.Hour
	maxMessages = math.MaxInt64 / 4 // so that counting cannot overflow
)

// Spec specifies a measurement. The initiator decides it for both ends. The comments name the fields
// that may be zero.
type Spec struct {
	Kind          Kind
	Mode          protocol.Mode
	Size          int           // bytes in each message, virtio_net_hdr included
	Queues        int           // data channels; 1 for Lat
	Iterations    uint64        // messages to time over all queues, or round trips; 0: use Duration
	Duration      time.Duration // time to measure; 0: use Iterations
	WarmUp        uint64        // messages, or round trips, before the timed ones
	Bidirectional bool          // both ends send; not for Lat
	PostList      int           // largest number of frames for each doorbell; 0: the layer's default
	TxDepth       int           // send buffers of each data channel; 0: the layer's default
	Poll          bool          // both ends poll instead of sleeping
	NoPack        bool          // a separate transfer for each frame
	// Protection is the protection of the memory that both ends lend; empty: the default of each
	// end.
	Protection messaging.Protection
	Cipher     seal.Cipher // of all frames and messages; empty: they are not encrypted
}

// largest returns the size of the largest message, which has room for a tag if it is encrypted.
func (s *Spec) largest() int {
	if s.Cipher != "" {
		return MaxSize - seal.Overhead
	}
	return MaxSize
}

// Check returns an error if s is invalid, in terms of the commands' flags.
func (s *Spec) Check() error {
	switch s.Kind {
	case BW, Lat, PPS:
	default:
		return fmt.Errorf("measurement %q: must be %s, %s or %s", s.Kind, BW, Lat, PPS)
	}
	if _, err := protocol.ParseMode(string(s.Mode)); err != nil {
		return fmt.Errorf("--mode: %w", err)
	}
	if s.Protection != "" {
		if _, err := messaging.ParseProtection(string(s.Protection)); err != nil {
			return fmt.Errorf("--protection: %w", err)
		}
	}
	if s.Cipher != "" {
		if _, err := seal.ParseCiphers(string(s.Cipher)); err != nil {
			return fmt.Errorf("--encrypt: %w", err)
		}
	}
	switch {
	case s.Size < MinSize || s.Size > s.largest():
		return fmt.Errorf("--size %d: must be %d to %d bytes", s.Size, MinSize, s.largest())
	case s.Queues < 1 || s.Queues > cq.MaxQueues:
		return fmt.Errorf("--qp %d: must be 1 to %d", s.Queues, cq.MaxQueues)
	case s.Kind == Lat && (s.Queues != 1 || s.Bidirectional):
		return fmt.Errorf("%s has one queue, and goes both ways by itself", Lat)
	case s.Iterations == 0 && s.Duration == 0:
		return fmt.Errorf("--iters 0: must be 1 at least, or give a --duration")
	case s.Iterations != 0 && s.Duration != 0:
		return fmt.Errorf("--iters and --duration: give one of them")
	case s.Iterations > maxMessages || s.WarmUp > maxMessages:
		return fmt.Errorf("--iters %d, --warm-up %d: must be at most %d", s.Iterations, s.WarmUp, uint64(maxMessages))
	case s.Duration == 0 && s.Iterations < uint64(s.Queues):
		return fmt.Errorf("--iters %d: must be %d at least, one for each queue", s.Iterations, s.Queues)
	case s.Duration < 0 || s.Duration > MaxDuration:
		return fmt.Errorf("--duration %v: must be above 0 and at most %v", s.Duration, MaxDuration)
	case s.PostList < 0 || s.PostList > MaxPostList:
		return fmt.Errorf("--post-list %d: must be 1 to %d", s.PostList, MaxPostList)
	case s.TxDepth < 0 || s.TxDepth > MaxTxDepth:
		return fmt.Errorf("--tx-depth %d: must be 1 to %d", s.TxDepth, MaxTxDepth)
	case s.TxDepth != 0 && s.TxDepth < max(s.PostList, 1)+2:
		return fmt.Errorf("--tx-depth %d: must be %d at least, two more than --post-list", s.TxDepth, max(s.PostList, 1)+2)
	}
	return nil
}

// messaging completes the configuration of the channels of an end.
func (s *Spec) messaging(c messaging.Config) messaging.Config {
	c.Mode, c.Queues, c.Poll = s.Mode, s.Queues, s.Poll
	c.NoPack = s.NoPack
	c.Protection, c.OneTouch = s.Protection, true // both ends have the same version
	c.EndsWithPort = true                         // a measurement with a pause measures nothing
	c.MTU = vnet.MaxFrame                         // no frame must be dropped because of its size
	c.Pools = messaging.DefaultPools(s.Mode, standardMTU)
	c.MaxPools = 0
	if s.PostList != 0 || s.TxDepth != 0 {
		c.SendSlots = cmp.Or(s.TxDepth, max(64, 4*s.PostList))
		c.Batch = cmp.Or(s.PostList, min(16, c.SendSlots/2))
		c.SignalEvery = min(16, c.SendSlots-c.Batch-1)
	}
	if s.PostList != 0 {
		c.BatchBytes = s.PostList * s.Size // otherwise batches of large frames would be shorter
	}
	return c
}

// keys returns the keys of an end, or nil if it does not encrypt. secret is that of both ends.
func (s *Spec) keys(secret func() ([seal.SecretSize]byte, error), initiator bool) (*seal.Keys, error) {
	if s.Cipher == "" {
		return nil, nil
	}
	some, err := secret()
	if err != nil {
		return nil, err
	}
	return seal.NewKeys(s.Cipher, some, initiator)
}

// standardMTU determines the sizes of the pools: for large frames of segmentation offload, and for
// small ones.
const standardMTU = 1500
