package tap

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/printable"
	"github.com/splitnic/splitnic/vnet"
)

// ErrExists is wrapped by errors of Open about a name that is in use.
var ErrExists = errors.New("a network device of this name exists")

// DefaultTxQueueLen is the default length of a queue in frames. A queue full of super-frames
// of 64 KiB takes 32 MiB of kernel memory.
const DefaultTxQueueLen = 512

// MaxTxQueueLen is the largest accepted length of a queue in frames. The kernel immediately
// allocates 8 bytes for each frame of each queue.
const MaxTxQueueLen = 1 << 20

// Config describes a TAP device to be made.
type Config struct {
	Name       string           // 1 to 15 bytes, may end in %d for a free number; empty means tap%d
	NetNS      string           // path or name of its network namespace; empty means the current one
	Queues     int              // 0 means 1
	Offloads   vnet.Offloads    // what frames read from it may leave to do: checksums, segmentation
	MAC        net.HardwareAddr // nil leaves the kernel's choice
	MTU        int              // bytes; 0 leaves the kernel's choice
	TxQueueLen int              // frames; 0 means DefaultTxQueueLen
	NoRing     bool             // one system call for each frame, even if io_uring(7) is available
	// NoDiscard turns early discard (package discard) off: full queues drop the frames that
	// arrive. If it is false only ReadFrame and ReadFrames may read from the queues.
	NoDiscard bool
	// Persist makes the device outlive the process. Open takes over a persistent device of
	// this name that an earlier process made. That device keeps its settings: MAC and MTU are
	// for new devices only.
	Persist bool
	// Plain makes the device without virtio_net_hdr: the kernel completes every checksum and
	// segments every super-frame before it puts frames into a queue. The queues put an empty header
	// before each frame that they read. They refuse to write a frame whose header requests an
	// offload: the error is unix.EINVAL. Offloads is ignored.
	Plain bool
}

// maxQueues is MAX_TAP_QUEUES of the kernel's drivers/net/tun.c.
const maxQueues = 256

// complete fills in the defaults of cfg and checks it.
func (c *Config) complete() error {
	c.Queues = cmp.Or(c.Queues, 1)
	c.TxQueueLen = cmp.Or(c.TxQueueLen, DefaultTxQueueLen)
	c.Name = cmp.Or(c.Name, "tap%d")
	if err := CheckName(c.Name); err != nil {
		return err
	}
	if c.Queues < 0 || c.Queues > maxQueues {
		return fmt.Errorf("%d queues: between 1 and %d are possible", c.Queues, maxQueues)
	}
	return nil
}

// CheckName returns an error for a name that the kernel's dev_valid_name refuses, or that
// TUNSETIFF would silently truncate.
func CheckName(name string) error {
	if len(name) >= unix.IFNAMSIZ {
		return fmt.Errorf("the name has %d bytes; a network device's has at most %d", len(name), unix.IFNAMSIZ-1)
	}
	if !printable.Is(name) || name == "." || name == ".." || strings.ContainsAny(name, "/: \t\n\v\f\r") {
		return errors.New("the name contains a character that names of network devices cannot have")
	}
	if before, after, ok := strings.Cut(name, "%"); ok && (after != "d" || before == "") {
		return errors.New("in the name, % can only be part of a final %d")
	}
	return nil
}
