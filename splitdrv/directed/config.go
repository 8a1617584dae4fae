package directed

import (
	"cmp"
	"fmt"
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

// Exchanger is an I/O device with a meaning for transactions with source data and results.
type Exchanger interface {
	Storage
	// Exchange carries out a transaction, and fills results. source has the data of all source
	// buffers. Either can be empty. Offset is that in the transaction.
	Exchange(results, source []byte, offset int64) error
}

// Config has the configuration of a Node.
type Config struct {
	Device   fabric.Device
	Platform protocol.Platform // of this process
	// Storage has the I/O devices of this I/O unit, by the owner's device numbers.
	Storage map[uint32]Storage
	// Allow is the owner's policy. It reports whether a requester may have all transactions of a
	// request. The I/O unit carries out what they say, whatever is in the part of the list that the
	// owner does not see. Without Allow, nothing is allowed. It is called from several goroutines.
	Allow func(requester protocol.Platform, r *protocol.DirectedRequest) bool
	// AllowMemory is the owner's policy for lists that name memory of another unit than the
	// requester. It reports whether any transaction of a request may have memory of that unit,
	// which also has to offer the memory (Link.Offer). Without AllowMemory, a list names memory of
	// the requester only. It is called from several goroutines.
	AllowMemory func(requester, of protocol.Platform, r *protocol.DirectedRequest) bool
	// MaxConnections is the largest number of connections of an I/O unit with requesters, of one
	// request with the units that its list names, and of a unit with the I/O units of one owner;
	// 64 if zero.
	MaxConnections int
	// Timeout is the longest time to wait for an answer; 30 s if zero.
	Timeout time.Duration
	Timing  fabric.Timing

	look time.Duration // longest time to look for the cause of a flush; default afterFlush
}

// withDefaults returns c with defaults in place of zero values.
func (c Config) withDefaults() Config {
	c.MaxConnections = cmp.Or(c.MaxConnections, 64)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.look = cmp.Or(c.look, afterFlush)
	return c
}

// StatusError is the answer to a request that was not carried out completely.
type StatusError struct {
	Status protocol.DirectedStatus
	Done   int    // number of transactions that were carried out completely
	Bytes  uint64 // number of bytes that were transferred, by those and by the next one
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("directed I/O after %d transactions and %d bytes: %v", e.Done, e.Bytes, e.Status)
}

// Is reports whether target is a *StatusError with the same status. Done and Bytes may differ.
func (e *StatusError) Is(target error) bool {
	t, ok := target.(*StatusError)
	return ok && t.Status == e.Status
}
