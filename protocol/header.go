package protocol

import (
	"encoding/binary"
	"fmt"

	"github.com/splitnic/splitnic/internal/printable"
)

const (
	// Version is the protocol version in the header of every message.
	Version = 1
	// HeaderSize is the size of a message's header in bytes.
	HeaderSize = 12
	// MaxControlSize is the size of the largest control message in bytes, with its header. It is
	// the size of each receive on the control channel.
	MaxControlSize = 4096
)

// Function is the type of a message.
type Function uint16

// The functions, numbered in the order in which source document 001 describes them.
// SendData travels on data channels, the others on the control channel.
const (
	FuncBufferRecvPool         Function = 1
	FuncBufferRecvPoolGet      Function = 2
	FuncBufferRecvPoolUpdate   Function = 3
	FuncBufferPoolFlushRequest Function = 4
	FuncBufferPoolFlushReply   Function = 5
	FuncSendData               Function = 6
	FuncBufferRDMAIndicate     Function = 7
	FuncCfgUtilRequest         Function = 8
	FuncCfgUtilReply           Function = 9
)

// The functions of directed I/O. No session of a host and an I/O unit has them:
// DecodeHeader refuses them there.
const (
	FuncDirectedRequest   Function = 10
	FuncDirectedReply     Function = 11
	FuncDirectedConnect   Function = 12
	FuncDirectedConnected Function = 13
)

var functionNames = [...]string{
	FuncBufferRecvPool: "BufferRecvPool", FuncBufferRecvPoolGet: "BufferRecvPoolGet",
	FuncBufferRecvPoolUpdate: "BufferRecvPoolUpdate", FuncBufferPoolFlushRequest: "BufferPoolFlushRequest",
	FuncBufferPoolFlushReply: "BufferPoolFlushReply", FuncSendData: "SendData",
	FuncBufferRDMAIndicate: "BufferRDMAIndicate", FuncCfgUtilRequest: "CfgUtilRequest", FuncCfgUtilReply: "CfgUtilReply",
	FuncDirectedRequest: "DirectedRequest", FuncDirectedReply: "DirectedReply",
	FuncDirectedConnect: "DirectedConnect", FuncDirectedConnected: "DirectedConnected",
}

// String returns the name of the message, or the number of an unknown one.
func (f Function) String() string { return printable.Name(functionNames[:], f, "function") }

func (f Function) known() bool { return f >= FuncBufferRecvPool && f <= FuncCfgUtilReply }

func (f Function) directed() bool { return f >= FuncDirectedRequest && f <= FuncDirectedConnected }

// Header is the beginning of each message.
type Header struct {
	Function Function
	Version  uint16
	// TransactionContext is chosen by the sender of a request. The reply has the same value.
	TransactionContext uint64
}

// DecodeHeader decodes the header of b, one whole control message. The function in it determines
// the Decode function to call. DecodeHeader returns an error for messages that are too short or too
// long, of another version, or with an unknown function.
func DecodeHeader(b []byte) (Header, error) {
	return decodeControl(b, Function.known)
}

// DecodeDirectedFunction returns the function of b, one whole message of directed I/O. It
// determines the Decode function to call.
func DecodeDirectedFunction(b []byte) (Function, error) {
	h, err := decodeControl(b, Function.directed)
	if err != nil {
		return 0, err
	}
	return h.Function, nil
}

// decodeControl decodes the header of b, one whole control message.
func decodeControl(b []byte, known func(Function) bool) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, fmt.Errorf("control message of %d bytes has no header: %w", len(b), ErrShort)
	}
	if len(b) > MaxControlSize {
		return Header{}, fmt.Errorf("control message of %d bytes: %w", len(b), ErrLong)
	}
	return decodeHeader(b, known)
}

// decodeHeader decodes the first HeaderSize bytes of b.
func decodeHeader(b []byte, known func(Function) bool) (Header, error) {
	h := Header{
		Function:           Function(binary.BigEndian.Uint16(b[0:])),
		Version:            binary.BigEndian.Uint16(b[2:]),
		TransactionContext: binary.BigEndian.Uint64(b[4:]),
	}
	// The version is checked first: another version may have other functions.
	if h.Version != Version {
		return h, fmt.Errorf("message of version %d, this side speaks %d: %w", h.Version, Version, ErrVersion)
	}
	if !known(h.Function) {
		return h, fmt.Errorf("message with %v: %w", h.Function, ErrFunction)
	}
	return h, nil
}

func appendHeader(dst []byte, f Function, transaction uint64) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(f))
	dst = binary.BigEndian.AppendUint16(dst, Version)
	return binary.BigEndian.AppendUint64(dst, transaction)
}

// body checks b's header and that the function is want, and returns the bytes behind the header.
func body(b []byte, want Function) (transaction uint64, rest []byte, err error) {
	known := Function.known
	if want.directed() {
		known = Function.directed
	}
	h, err := decodeControl(b, known)
	if err != nil {
		return 0, nil, err
	}
	if h.Function != want {
		return 0, nil, fmt.Errorf("%v where %v was expected: %w", h.Function, want, ErrFunction)
	}
	return h.TransactionContext, b[HeaderSize:], nil
}

// records is body for a message of records of that size, at least one of them.
func records(b []byte, want Function, size int) (transaction uint64, rest []byte, err error) {
	transaction, rest, err = body(b, want)
	if err != nil {
		return 0, nil, err
	}
	if len(rest) == 0 {
		return 0, nil, fmt.Errorf("%v without a record: %w", want, ErrCount)
	}
	if n := len(rest) % size; n != 0 {
		return 0, nil, fmt.Errorf("%v: the last record has %d of %d bytes: %w", want, n, size, ErrShort)
	}
	return transaction, rest, nil
}

func exactly(b []byte, size int) error {
	switch {
	case len(b) < size:
		return fmt.Errorf("%d bytes of data, must be %d: %w", len(b), size, ErrShort)
	case len(b) > size:
		return fmt.Errorf("%d bytes of data, must be %d: %w", len(b), size, ErrTrailing)
	}
	return nil
}
