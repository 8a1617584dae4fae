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

// Config is what a Node is.
type Config struct {
	Device   fabric.Device
	Platform protocol.Platform // of this process
	// Storage are the I/O devices of this I/O unit, by the owner's numbers.
	Storage map[uint32]Storage
	// Allow is the owner's policy: whether a requester may have that transfer of so
	// many bytes, and of that I/O device. Without it nobody may have anything. It is
	// called from several goroutines.
	Allow func(requester protocol.Platform, r *protocol.DirectedRequest, bytes uint64) bool
	// MaxConnections bounds the connections of an I/O unit with requesters, and those
	// of a requester with the I/O units of an owner; 64 if zero.
	MaxConnections int
	// Timeout bounds how long an answer may take; 30 s if zero.
	Timeout time.Duration
	Timing  fabric.Timing
}

// withDefaults is what the zero values stand for.
func (c Config) withDefaults() Config {
	if c.MaxConnections == 0 {
		c.MaxConnections = 64
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	return c
}
