package protocol

import "errors"

// Errors of the decoders. The errors that are returned wrap them and name the message and the
// invalid value.
var (
	ErrShort    = errors.New("message too short")
	ErrLong     = errors.New("message too long")
	ErrTrailing = errors.New("bytes after the end of the message")
	ErrVersion  = errors.New("unsupported protocol version")
	ErrFunction = errors.New("unexpected function")
	ErrCount    = errors.New("count out of range")
	ErrSize     = errors.New("size out of range")
	ErrOverflow = errors.New("address range overflows")
	ErrPadding  = errors.New("padding is not zero")
	ErrPool     = errors.New("pool reference out of range")
	ErrChannel  = errors.New("not a data channel")
	ErrMAC      = errors.New("not a unicast MAC address")
	ErrGroup    = errors.New("not a multicast MAC address")
	ErrVLAN     = errors.New("not a VLAN identifier")
	ErrMode     = errors.New("unknown transfer mode")
	ErrMemory   = errors.New("memory where there must be none")
	ErrReserved = errors.New("reserved bits are set")
	ErrPlatform = errors.New("not a platform identifier")
	ErrElement  = errors.New("element of a list out of place")
	ErrLoop     = errors.New("the list leads back to itself")
)
