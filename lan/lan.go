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
	// ErrUnsupported is wrapped by errors about what a back-end cannot do.
	ErrUnsupported = errors.New("not supported by this kind of LAN interface")
	// ErrGone is wrapped by errors about a network card, or a netdevice of a
	// port, that was removed.
	ErrGone = errors.New("the network device is gone")
	// ErrInUse is wrapped by errors about a MAC address or device name that
	// something else on the same card has.
	ErrInUse = errors.New("already in use")
)

// Config describes a host's port on a network card.
type Config struct {
	NetNS    string           // path or name of the card's network namespace; empty means the current one
	Name     string           // of the netdevice that macvtap and tap make; empty derives it from MAC
	MAC      net.HardwareAddr // the host's address; nil makes one up
	Queues   int              // 0 means 1
	Offloads vnet.Offloads    // what frames read from the port may leave unfinished
	// Latency makes the last queue, of at least two, that of latency-sensitive
	// frames; the rule's own number of queues does not matter. Where the kernel
	// cannot do it, Open fails with an error that wraps steer.ErrUnavailable.
	Latency *steer.Rule
	// Log is told who connects to a port of a switch in user space; nil: nobody is.
	Log *slog.Logger
	// NoRing has macvtap and tap make a system call for each frame, also where
	// io_uring(7) could save some.
	NoRing bool
	// NoDiscard has macvtap and tap drop what comes when a queue is full, and
	// not whole datagrams before. Otherwise only the methods of Queue may read.
	NoDiscard bool
}

// Queue is one queue of a port. A frame is [virtio_net_hdr | Ethernet frame].
// No call blocks or allocates.
type Queue interface {
	// FD returns the descriptor for poll(2): readable means that ReadFrame may
	// find a frame. It belongs to the queue.
	FD() int
	// WriteFD is the same for writing: writable means that WriteFrame may
	// succeed. It can be another descriptor.
	WriteFD() int
	// ReadFrame reads one frame into slot and returns the part of slot that
	// holds it, which may begin up to vnet.Headroom bytes into it. slot should
	// have more than vnet.Headroom + vnet.MaxFrame bytes. Errors are bare:
	// unix.EAGAIN when there is no frame, vnet.ErrTooLong when one was dropped
	// because it did not fit, net.ErrClosed after Close.
	ReadFrame(slot []byte) ([]byte, error)
	// WriteFrame sends one frame, which it copies; it may change the
	// virtio_net_hdr in place. Errors are bare: unix.EAGAIN when the queue is
	// full and the frame can be tried again; after all others it is lost:
	// unix.EINVAL when the kernel refuses the header, unix.EMSGSIZE when the
	// frame exceeds the MTU, unix.ENOBUFS when the card's queue is full,
	// unix.EIO or unix.ENETDOWN when the device is down, net.ErrClosed.
	WriteFrame(frame []byte) error
	// WriteParts is WriteFrame for a frame whose first bytes, at least
	// vnet.MinFrame of them, lie elsewhere than its rest, which may be empty.
	// What the kernel decides by, the addresses for example, can so be kept
	// where nobody else can change it.
	WriteParts(head, rest []byte) error
	// ReadFrames reads into the slots of ops from the first on, and returns how
	// many of ops it has filled: at least one, if there is any. Only the last of
	// these can have unix.EAGAIN, or another error that ReadFrame has but
	// vnet.ErrTooLong and vnet.ErrInvalid. It may return before all are filled.
	ReadFrames(ops []vnet.ReadOp) int
	// WriteFrames writes frames from the first on, and returns how many of ops
	// are done with: all, or those before the first one for which the queue is
	// full at the moment, the Err of which is unix.EAGAIN. Other errors, as
	// WriteFrame has them, are about their own frame only.
	WriteFrames(ops []vnet.WriteOp) int
	// Close is idempotent. A poll(2) on FD by somebody else has to be over.
	Close() error
}

// Interface is a host's port on a network card.
type Interface interface {
	// Name is the netdevice that frames go through: the one that was made, or
	// the card itself for packet sockets.
	Name() string
	// Queues returns the port's queues. The slice belongs to the port.
	Queues() []Queue
	// MAC is the host's address.
	MAC() net.HardwareAddr
	// SetMAC changes the host's address.
	SetMAC(mac net.HardwareAddr) error
	// State reads the state of the card below.
	State() (LinkState, error)
	// Watch calls fn with the card's state now and after each change, until
	// ctx is done (then it returns nil) or the card, or the port's netdevice on
	// it, is gone (then it calls fn with a state that is not Up and returns an
	// error that wraps ErrGone). It also keeps the port's own MTU equal to the card's.
	Watch(ctx context.Context, fn func(LinkState)) error
	// Offloads is what frames read from the port may leave unfinished.
	Offloads() vnet.Offloads
	// SetOffloads changes that and returns what is in force: less than asked
	// for where the kernel lacks something. It fails, wrapping ErrUnsupported,
	// where the port would have to finish frames itself.
	SetOffloads(o vnet.Offloads) (vnet.Offloads, error)
	// SetUp sets the port administratively up or down. Down, it passes no
	// frames: none is read, and what is written is lost. Up from the start.
	SetUp(up bool) error
	// SetPromisc asks for frames to other addresses as well: those that arrive
	// at the card. What hosts on the same card send each other does not, and a
	// bridge has only what it floods.
	SetPromisc(on bool) error
	// Floods reports whether SetPromisc changes nothing, because the port is one
	// of a bridge: that learns who is behind it, and floods what is for stations
	// that it does not know.
	Floods() bool
	// SetAllMulti asks for frames to all groups; on from the start.
	SetAllMulti(on bool) error
	// SetMulticast replaces the list of groups that frames are wanted for where
	// all are not. Frames to the broadcast address always arrive, and others
	// may: the kernel's filters are coarse, and a bridge decides for itself.
	SetMulticast(groups []net.HardwareAddr) error
	// SetUnicast replaces the list of further addresses of the host, besides
	// its MAC address: at most MaxUnicast.
	SetUnicast(addrs []net.HardwareAddr) error
	// EarlyDiscard says whether the kernel drops whole datagrams before a queue of
	// the port is full, or what comes when it is.
	EarlyDiscard() discard.Status
	// Announce sends one frame of the host's, [virtio_net_hdr | Ethernet frame],
	// besides those that go through the queues. It goes to the LAN; other ports on
	// the card have it from a bridge only. It may be called at any time by
	// anybody. On a port that is down it fails, or the frame is lost.
	Announce(frame []byte) error
	// Stats counts since Open.
	Stats() Stats
	// Close closes the queues and removes the netdevice that Open made. It is
	// idempotent. Workers must have stopped polling the queues' descriptors.
	Close() error
}

// MaxUnicast is the largest number of addresses that a host has besides its MAC
// address. One that needs more has to be promiscuous.
const MaxUnicast = 32

// Stats are a port's counters of frames from the card that the host did not
// get.
type Stats struct {
	TooLong uint64 `json:"too_long"` // longer than vnet.MaxFrame or than the slot
	// could not be described by a virtio_net_hdr, or only by one that the host does not know
	Invalid uint64 `json:"invalid"`
	Dropped uint64 `json:"dropped"` // no room in the kernel's queue
}

func (s *Stats) add(o Stats) {
	s.TooLong += o.TooLong
	s.Invalid += o.Invalid
	s.Dropped += o.Dropped
}

// Kind is a back-end.
type Kind string

// The back-ends.
const (
	Macvtap   Kind = "macvtap"
	Packet    Kind = "packet"
	TAP       Kind = "tap"
	VhostUser Kind = "vhost-user"
)

// LinkState is what a host has to know of the network card.
type LinkState struct {
	Up    bool // administratively up, with carrier
	MTU   int  // bytes
	Speed int  // Mbit/s; 0 where the card does not say
	// MAC is the card's own address, all zero if it has none. A bridge takes another
	// one with its ports, unless it was given one.
	MAC [6]byte
}
