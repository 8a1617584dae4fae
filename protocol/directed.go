package protocol

import (
	"encoding/binary"
	"fmt"
)

// DirectedOperation is the operation that an I/O device is to carry out.
type DirectedOperation uint32

// The operations.
const (
	DirectedRead  DirectedOperation = 1 // from the I/O device to the memory
	DirectedWrite DirectedOperation = 2 // from the memory to the I/O device
)

// String returns the name of the operation.
func (o DirectedOperation) String() string {
	switch o {
	case DirectedRead:
		return "read"
	case DirectedWrite:
		return "write"
	}
	return fmt.Sprintf("operation %d", uint32(o))
}

// DirectedStatus is the result of a request. An unknown status means DirectedFailed.
type DirectedStatus uint32

// The statuses.
const (
	DirectedOK          DirectedStatus = 0
	DirectedDenied      DirectedStatus = 1 // by the unit that owns the I/O device
	DirectedInvalid     DirectedStatus = 2 // the list is malformed, or does not suit the operation
	DirectedPlatform    DirectedStatus = 3 // memory of a unit that the owner does not allow
	DirectedAccess      DirectedStatus = 4 // the RDMA device of the memory's unit refuses a handle
	DirectedUnreachable DirectedStatus = 5 // there is no connection, or it has failed
	DirectedFailed      DirectedStatus = 6 // the I/O device has failed, or something else
)

var directedStatuses = [...]string{
	"ok", "denied by the owner", "the list is not valid", "memory of another platform", "access refused",
	"the unit with the memory cannot be reached", "failed",
}

// String returns a description of the status.
func (s DirectedStatus) String() string {
	return directedStatuses[min(int(s), len(directedStatuses)-1)]
}

// directedListAt is the offset of the list in a request.
const directedListAt = HeaderSize + 24

// MaxDirectedList is the size of the largest first sequence of a list, which is in the request.
const MaxDirectedList = MaxControlSize - directedListAt

// DirectedRequest requests a transfer between an I/O device and memory.
type DirectedRequest struct {
	TransactionContext uint64
	Operation          DirectedOperation
	Device             uint32 // number of the I/O device at its owner
	Offset             uint64 // on the I/O device, in bytes
	// Requester is the unit that the request is from. It sends 0. The owner, which knows the
	// sender, sets it.
	Requester Platform
	List      []byte // the first sequence of the list
}

// DecodeDirectedRequest decodes b, one whole message. It checks the part of the list that is in
// the message as ListDecoder does.
func DecodeDirectedRequest(b []byte) (DirectedRequest, error) {
	transaction, rest, err := directedBody(b, FuncDirectedRequest)
	if err != nil {
		return DirectedRequest{}, err
	}
	if len(b) < directedListAt {
		return DirectedRequest{}, fmt.Errorf("DirectedRequest of %d bytes: %w", len(b), ErrShort)
	}
	r := DirectedRequest{
		TransactionContext: transaction,
		Operation:          DirectedOperation(binary.BigEndian.Uint32(rest[0:])),
		Device:             binary.BigEndian.Uint32(rest[4:]),
		Offset:             binary.BigEndian.Uint64(rest[8:]),
		Requester:          Platform(binary.BigEndian.Uint64(rest[16:])),
		List:               b[directedListAt:],
	}
	if r.Operation != DirectedRead && r.Operation != DirectedWrite {
		return DirectedRequest{}, fmt.Errorf("DirectedRequest: %v: %w", r.Operation, ErrFunction)
	}
	var list ListDecoder
	if _, _, err := list.Add(r.List); err != nil {
		return DirectedRequest{}, fmt.Errorf("DirectedRequest: %w", err)
	}
	if a := list.Attributes(); r.Offset > maxDeviceSize || a.Bytes > maxDeviceSize-r.Offset {
		return DirectedRequest{}, fmt.Errorf("DirectedRequest: %d bytes at %#x: %w", a.Bytes, r.Offset, ErrOverflow)
	}
	return r, nil
}

// maxDeviceSize is the size of the largest I/O device. Offsets fit signed integers of 64 bits.
const maxDeviceSize = 1<<63 - 1

// AppendDirectedRequest appends a request. The list must fit the message.
func AppendDirectedRequest(dst []byte, r DirectedRequest) []byte {
	dst = appendHeader(dst, FuncDirectedRequest, r.TransactionContext)
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.Operation))
	dst = binary.BigEndian.AppendUint32(dst, r.Device)
	dst = binary.BigEndian.AppendUint64(dst, r.Offset)
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.Requester))
	return append(dst, r.List...)
}

// DirectedReply has the result of a request.
type DirectedReply struct {
	TransactionContext uint64 // of the request
	Status             DirectedStatus
	Bytes              uint64 // transferred
}

// DecodeDirectedReply decodes b, one whole message.
func DecodeDirectedReply(b []byte) (DirectedReply, error) {
	transaction, rest, err := directedBody(b, FuncDirectedReply)
	if err != nil {
		return DirectedReply{}, err
	}
	if err := exactly(rest, 12); err != nil {
		return DirectedReply{}, fmt.Errorf("DirectedReply: %w", err)
	}
	return DirectedReply{
		TransactionContext: transaction,
		Status:             DirectedStatus(binary.BigEndian.Uint32(rest)),
		Bytes:              binary.BigEndian.Uint64(rest[4:]),
	}, nil
}

// AppendDirectedReply appends a reply.
func AppendDirectedReply(dst []byte, r DirectedReply) []byte {
	dst = appendHeader(dst, FuncDirectedReply, r.TransactionContext)
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.Status))
	return binary.BigEndian.AppendUint64(dst, r.Bytes)
}

// DirectedEnd is one end of the connection between an I/O unit and a unit with memory.
type DirectedEnd struct {
	BoundChannel
	MTU   uint16 // the largest path MTU that this side can use
	Reads uint16 // number of outstanding RDMA reads, requested or granted; at most 255
}

const directedEndSize = 32

func (e *DirectedEnd) decode(b []byte) {
	e.QPN = binary.BigEndian.Uint32(b)
	e.PSN = binary.BigEndian.Uint32(b[4:])
	e.LID = binary.BigEndian.Uint16(b[8:])
	e.MTU = binary.BigEndian.Uint16(b[10:])
	copy(e.GID[:], b[12:28])
	e.Reads = binary.BigEndian.Uint16(b[28:])
}

func (e *DirectedEnd) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, e.QPN)
	dst = binary.BigEndian.AppendUint32(dst, e.PSN)
	dst = binary.BigEndian.AppendUint16(dst, e.LID)
	dst = binary.BigEndian.AppendUint16(dst, e.MTU)
	dst = append(dst, e.GID[:]...)
	dst = binary.BigEndian.AppendUint16(dst, e.Reads)
	return append(dst, 0, 0)
}

// valid checks an end that was decoded from b.
func (e *DirectedEnd) valid(b []byte) error {
	switch {
	case e.QPN < 2 || e.QPN > 1<<24-2:
		return fmt.Errorf("queue pair %d: %w", e.QPN, ErrSize)
	case e.PSN >= 1<<24:
		return fmt.Errorf("packet sequence number %#x: %w", e.PSN, ErrSize)
	case e.MTU < 256 || e.MTU > 4096 || e.MTU&(e.MTU-1) != 0:
		return fmt.Errorf("path MTU %d: %w", e.MTU, ErrSize)
	case e.Reads > 255:
		return fmt.Errorf("%d reads at a time: %w", e.Reads, ErrCount)
	case b[30] != 0 || b[31] != 0:
		return ErrPadding
	}
	return nil
}

// DirectedConnect requests a connection from an I/O unit to a unit with memory. The owner forwards
// the request and the answer.
type DirectedConnect struct {
	TransactionContext uint64
	From, To           Platform // the I/O unit, and the unit with the memory
	Requester          Platform // the unit whose request names the memory: often To
	End                DirectedEnd
}

// DecodeDirectedConnect decodes b, one whole message.
func DecodeDirectedConnect(b []byte) (DirectedConnect, error) {
	transaction, rest, err := directedBody(b, FuncDirectedConnect)
	if err != nil {
		return DirectedConnect{}, err
	}
	if err := exactly(rest, 24+directedEndSize); err != nil {
		return DirectedConnect{}, fmt.Errorf("DirectedConnect: %w", err)
	}
	c := DirectedConnect{
		TransactionContext: transaction,
		From:               Platform(binary.BigEndian.Uint64(rest)),
		To:                 Platform(binary.BigEndian.Uint64(rest[8:])),
		Requester:          Platform(binary.BigEndian.Uint64(rest[16:])),
	}
	if c.From == 0 || c.To == 0 || c.Requester == 0 {
		return DirectedConnect{}, fmt.Errorf("DirectedConnect from %v to %v for %v: %w", c.From, c.To, c.Requester,
			ErrPlatform)
	}
	c.End.decode(rest[24:])
	if err := c.End.valid(rest[24:]); err != nil {
		return DirectedConnect{}, fmt.Errorf("DirectedConnect: %w", err)
	}
	return c, nil
}

// AppendDirectedConnect appends a request for a connection.
func AppendDirectedConnect(dst []byte, c DirectedConnect) []byte {
	dst = appendHeader(dst, FuncDirectedConnect, c.TransactionContext)
	dst = binary.BigEndian.AppendUint64(dst, uint64(c.From))
	dst = binary.BigEndian.AppendUint64(dst, uint64(c.To))
	dst = binary.BigEndian.AppendUint64(dst, uint64(c.Requester))
	return c.End.append(dst)
}

// DirectedConnected is the answer to a DirectedConnect.
type DirectedConnected struct {
	TransactionContext uint64
	Status             DirectedStatus
	End                DirectedEnd // zero unless Status is DirectedOK
}

// DecodeDirectedConnected decodes b, one whole message.
func DecodeDirectedConnected(b []byte) (DirectedConnected, error) {
	transaction, rest, err := directedBody(b, FuncDirectedConnected)
	if err != nil {
		return DirectedConnected{}, err
	}
	if err := exactly(rest, 4+directedEndSize); err != nil {
		return DirectedConnected{}, fmt.Errorf("DirectedConnected: %w", err)
	}
	c := DirectedConnected{
		TransactionContext: transaction, Status: DirectedStatus(binary.BigEndian.Uint32(rest)),
	}
	c.End.decode(rest[4:])
	if c.Status != DirectedOK {
		if c.End != (DirectedEnd{}) || rest[4+30] != 0 || rest[4+31] != 0 {
			return DirectedConnected{}, fmt.Errorf("DirectedConnected, %v, with a queue pair: %w", c.Status, ErrReserved)
		}
		return c, nil
	}
	if err := c.End.valid(rest[4:]); err != nil {
		return DirectedConnected{}, fmt.Errorf("DirectedConnected: %w", err)
	}
	return c, nil
}

// AppendDirectedConnected appends an answer.
func AppendDirectedConnected(dst []byte, c DirectedConnected) []byte {
	dst = appendHeader(dst, FuncDirectedConnected, c.TransactionContext)
	dst = binary.BigEndian.AppendUint32(dst, uint32(c.Status))
	return c.End.append(dst)
}

// DecodeDirectedFunction returns the function of b, one whole message of directed I/O. It
// determines the Decode function to call.
func DecodeDirectedFunction(b []byte) (Function, error) {
	if len(b) < HeaderSize {
		return 0, fmt.Errorf("message of directed I/O of %d bytes has no header: %w", len(b), ErrShort)
	}
	if len(b) > MaxControlSize {
		return 0, fmt.Errorf("message of directed I/O of %d bytes: %w", len(b), ErrLong)
	}
	if v := binary.BigEndian.Uint16(b[2:]); v != Version {
		return 0, fmt.Errorf("message of version %d, this side speaks %d: %w", v, Version, ErrVersion)
	}
	f := Function(binary.BigEndian.Uint16(b))
	if f < FuncDirectedRequest || f > FuncDirectedConnected {
		return 0, fmt.Errorf("message of directed I/O with %v: %w", f, ErrFunction)
	}
	return f, nil
}

// directedBody checks b's header and its function, and returns the bytes behind the header.
func directedBody(b []byte, want Function) (transaction uint64, rest []byte, err error) {
	f, err := DecodeDirectedFunction(b)
	if err != nil {
		return 0, nil, err
	}
	if f != want {
		return 0, nil, fmt.Errorf("%v where %v was expected: %w", f, want, ErrFunction)
	}
	return binary.BigEndian.Uint64(b[4:]), b[HeaderSize:], nil
}

// exactly checks the size of a body.
func exactly(b []byte, size int) error {
	switch {
	case len(b) < size:
		return fmt.Errorf("%d bytes of %d: %w", len(b), size, ErrShort)
	case len(b) > size:
		return fmt.Errorf("%d bytes more than %d: %w", len(b)-size, size, ErrTrailing)
	}
	return nil
}
