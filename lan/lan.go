package lan

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vnet"
)

var (
	// ErrUnsupported is wrapped by errors about something that a kind of LAN interface cannot do.
	ErrUnsupported = errors.New("not supported by this kind of LAN interface")
	// ErrGone is wrapped by errors about a network card, or the netdevice of a port, that was
	// removed.
	ErrGone = errors.New("the network device is gone")
	// ErrInUse is wrapped by errors about a MAC address or device name that is already used
	// on the same card.
	ErrInUse = errors.New("already in use")
)

// Config describes a host's port on a network card.
type Config struct {
	NetNS    string           // path or name of the card's network namespace; empty means the current one
	Name     string           // of the netdevice that macvtap and tap make; empty: derived from MAC
	MAC      net.HardwareAddr // the host's address; nil means a random one
	Queues   int              // 0 means 1
	Offloads vnet.Offloads    // offloads that frames read from the port may need
	// Latency makes the last queue the one for latency-sensitive frames. There must be at
	// least two queues; Queues of the rule is ignored. If the kernel cannot do this, Open
	// fails with an error that wraps steer.ErrUnavailable.
	Latency *steer.Rule
	// Log is told about connections to a port of a switch in user space. It may be nil.
	Log *slog.Logger
	// NoRing makes macvtap and tap use one system call for each frame, even if io_uring(7)
	// could save some.
	NoRing bool
	// NoDiscard disables early discard of whole datagrams: macvtap and tap then drop frames
	// only when a queue is full. Without NoDiscard, frames must be read with the methods of
	// Queue only.
	NoDiscard bool
}

// Queue is one queue of a port. A frame is [virtio_net_hdr | Ethernet frame].
// No call blocks or allocates.
type Queue interface {
	// FD returns the descriptor for poll(2), which is readable when ReadFrames may find a
	// frame. It belongs to the queue.
	FD() int
	// WriteFD returns the descriptor for poll(2), which is writable when WriteFrames may
	// succeed. It can differ from FD.
	WriteFD() int
	// ReadFrames reads frames into the slots of ops, from the first on, and returns how many of ops
	// it has filled: at least one, unless ops is empty. A frame may begin up to vnet.Headroom bytes
	// into its slot, which should have more than vnet.Headroom + vnet.MaxFrame bytes. Errors are not
	// wrapped. Any of the operations can have vnet.ErrTooLong, if the frame was dropped because it
	// did not fit, or vnet.ErrInvalid. Only the last one can have another error: unix.EAGAIN if there
	// is no frame, net.ErrClosed after Close. ReadFrames may return before all of ops are filled.
	ReadFrames(ops []vnet.ReadOp) int
	// WriteFrames sends frames, from the first on, and returns how many of ops are done: all of
	// them, or those before the first one for which the queue is full at the moment. The Err of that
	// one is unix.EAGAIN. It copies frames, and may change their virtio_net_hdr in place. The head of
	// a frame has at least vnet.MinFrame bytes. The fields on which the kernel bases its decisions,
	// such as the addresses, can thus be in memory that nobody else can change. After any other error
	// the frame is lost, and no other one: unix.EINVAL if the kernel rejects the header, unix.EMSGSIZE
	// if the frame exceeds the MTU, unix.ENOBUFS if the card's queue is full, unix.EIO or
	// unix.ENETDOWN if the device is down, net.ErrClosed after Close. Errors are not wrapped.
	WriteFrames(ops []vnet.WriteOp) int
	// Close is idempotent. No other goroutine may be in poll(2) on FD any more.
	Close() error
}

// Interface is a host's port on a network card.
type Interface interface {
	// Name returns the name of the netdevice that frames go through. This is the netdevice
	// that Open made, or the card itself with packet sockets.
	Name() string
	// Queues returns the port's queues. The slice belongs to the port.
	Queues() []Queue
	// MAC returns the host's address.
	MAC() net.HardwareAddr
	// SetMAC changes the host's address.
	SetMAC(mac net.HardwareAddr) error
	// State reads the state of the card.
	State() (LinkState, error)
	// Watch calls fn with the card's state now and after each change. It returns nil when ctx
	// is done. When the card, or the port's netdevice on it, is gone, Watch calls fn with a
	// state that is not Up and returns an error that wraps ErrGone. Watch also keeps the
	// port's own MTU equal to the card's.
	Watch(ctx context.Context, fn func(LinkState)) error
	// Offloads returns the offloads that frames read from the port may need.
	Offloads() vnet.Offloads
	// SetOffloads changes these offloads and returns the result, which has fewer than o if
	// the kernel lacks some. It fails with an error that wraps ErrUnsupported if the port
	// would have to compute checksums or segment frames itself.
	SetOffloads(o vnet.Offloads) (vnet.Offloads, error)
	// SetUp sets the port administratively up or down. A port that is down passes no frames:
	// no frames are read, and written frames are lost. A new port is up.
	SetUp(up bool) error
	// SetPromisc turns the reception of frames to other addresses on or off. These are frames
	// that arrive at the card, and at macvtaps also those to the address of another host on the
	// same card. The port of a bridge gets only frames that the bridge floods.
	SetPromisc(on bool) error
	// Floods reports whether SetPromisc changes nothing because the port is one of a bridge
	// or switch. A bridge learns which stations are behind a port, and floods frames to
	// unknown stations.
	Floods() bool
	// SetAllMulti turns the reception of frames to all groups on or off. A new port has it on.
	SetAllMulti(on bool) error
	// SetMulticast replaces the list of groups whose frames the port receives while
	// SetAllMulti is off. Frames to the broadcast address always arrive. Frames to other
	// groups may arrive: the kernel's filters are coarse, and a bridge decides for itself.
	SetMulticast(groups []net.HardwareAddr) error
	// SetUnicast replaces the list of addresses that the host has in addition to its MAC
	// address, at most MaxUnicast.
	SetUnicast(addrs []net.HardwareAddr) error
	// EarlyDiscard returns whether the kernel drops whole datagrams before a queue of the
	// port is full, instead of single frames when it is full.
	EarlyDiscard() discard.Status
	// Announce sends one frame of the host, [virtio_net_hdr | Ethernet frame], to the LAN
	// without using the queues. Other ports on the same card receive the frame only from a
	// bridge. Announce may be called at any time from any goroutine. If the port is down,
	// Announce fails or the frame is lost.
	Announce(frame []byte) error
	// Stats returns counters since Open.
	Stats() Stats
	// Close closes the queues and removes the netdevice that Open made. It is idempotent.
	// Workers must have stopped polling the queues' descriptors.
	Close() error
}

// MaxUnicast is the largest number of addresses that a host can have in addition to its MAC
// address. A host that needs more has to be promiscuous. Kernels before 6.8 have room for the
// filter of about 300, unless the sysctl net.core.optmem_max is raised above its default.
const MaxUnicast = 512

// Stats has a port's counters of frames from the card that the host did not get.
type Stats struct {
	TooLong uint64 `json:"too_long"` // longer than vnet.MaxFrame or than the slot
	// cannot be described by a virtio_net_hdr, or need an offload that the host does not have
	Invalid uint64 `json:"invalid"`
	Dropped uint64 `json:"dropped"` // no room in the kernel's queue
}

func (s *Stats) add(o Stats) {
	s.TooLong += o.TooLong
	s.Invalid += o.Invalid
	s.Dropped += o.Dropped
}

// LinkState is the state of the network card that a host follows.
type LinkState struct {
	Up    bool // administratively up, with carrier
	MTU   int  // bytes
	Speed int  // Mbit/s; 0 if unknown
	// MAC is the card's own address, all zero if the card has none. The address of a bridge
	// can change when its ports change, unless it was set explicitly.
	MAC [6]byte
}
