package directed

import (
	"io"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// Storage is an I/O device, as its I/O unit sees it.
type Storage interface {
	io.ReaderAt
	io.WriterAt
}

// Config has the configuration of a Node.
type Config struct {
	Device   fabric.Device
	Platform protocol.Platform // of this process
	// Storage has the I/O devices of this I/O unit, by the owner's device numbers.
	Storage map[uint32]Storage
	// Allow is the owner's policy. It reports whether a requester may have this transfer of
	// this many bytes from or to this I/O device. Without Allow, no transfer is allowed. It is
	// called from several goroutines.
	Allow func(requester protocol.Platform, r *protocol.DirectedRequest, bytes uint64) bool
	// AllowMemory is the owner's policy for lists that name memory of another unit than the
	// requester. It reports whether a requester may have this transfer from or to the memory of
	// that unit, which also has to offer the memory (Link.Offer). Without AllowMemory, a list names
	// memory of the requester only. It is called from several goroutines.
	AllowMemory func(requester, of protocol.Platform, r *protocol.DirectedRequest) bool
	// MaxConnections is the largest number of connections of an I/O unit with requesters, of one
	// request with the units that its list names, and of a unit with the I/O units of one owner;
	// 64 if zero.
	MaxConnections int
	// Timeout is the longest time to wait for an answer; 30 s if zero.
	Timeout time.Duration
	Timing  fabric.Timing
}

// withDefaults returns c with defaults in place of zero values.
func (c Config) withDefaults() Config {
	if c.MaxConnections == 0 {
		c.MaxConnections = 64
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	return c
}
