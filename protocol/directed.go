package protocol

import (
	"encoding/binary"
	"fmt"
)

// DirectedStatus is the result of a request. An unknown status means DirectedFailed.
type DirectedStatus uint32

// The statuses.
const (
	DirectedOK          DirectedStatus = 0
	DirectedDenied      DirectedStatus = 1 // by the unit that owns the I/O device
	DirectedInvalid     DirectedStatus = 2 // the list is malformed, or does not suit the transactions
	DirectedPlatform    DirectedStatus = 3 // memory of a unit that the owner does not allow
	DirectedAccess      DirectedStatus = 4 // the RDMA device of the memory's unit refuses a handle
	DirectedUnreachable DirectedStatus = 5 // there is no connection, or it has failed
	DirectedFailed      DirectedStatus = 6 // the I/O device has failed, or something else
	DirectedUnsupported DirectedStatus = 7 // the I/O device has no such operation
)

var directedStatuses = [...]string{
	"ok", "denied by the owner", "the list is not valid", "memory of another platform", "access refused",
	"the unit with the memory cannot be reached", "failed", "the I/O device has no such operation",
}

// String returns a description of the status.
func (s DirectedStatus) String() string {
	if int(s) >= len(directedStatuses) {
		s = DirectedFailed
	}
	return directedStatuses[s]
}

// directedTransactionsAt is the offset of the transactions in a request.
const directedTransactionsAt = HeaderSize + 16

// MaxDirectedList returns the size of the largest first sequence of a list, which is in the request
// behind that many transactions.
func MaxDirectedList(transactions int) int {
	return MaxControlSize - directedTransactionsAt - transactions*directedTransactionSize
}

// DirectedRequest requests transactions of an I/O device with memory, one after the other.
type DirectedRequest struct {
	TransactionContext uint64
	Device             uint32 // number of the I/O device at its owner
	// Requester is the unit that the request is from. It sends 0. The owner, which knows the
	// sender, sets it.
	Requester    Platform
	Transactions []DirectedTransaction // 1 to MaxDirectedTransactions
	List         []byte                // the first sequence of the list; empty if there are no buffers
}

// Bytes returns the number of bytes of the first n transactions.
func (r *DirectedRequest) Bytes(n int) (bytes uint64) {
	for i := range r.Transactions[:n] {
		bytes += r.Transactions[i].Bytes()
	}
	return bytes
}

// DecodeDirectedRequest decodes b, one whole message. It checks the part of the list that is in
// the message as ListDecoder does, and a whole list as MatchDirected does.
func DecodeDirectedRequest(b []byte) (DirectedRequest, error) {
	transaction, rest, err := body(b, FuncDirectedRequest)
	if err != nil {
		return DirectedRequest{}, err
	}
	if len(b) < directedTransactionsAt {
		return DirectedRequest{}, fmt.Errorf("DirectedRequest of %d bytes: %w", len(b), ErrShort)
	}
	r := DirectedRequest{
		TransactionContext: transaction,
		Device:             binary.BigEndian.Uint32(rest[0:]),
		Requester:          Platform(binary.BigEndian.Uint64(rest[8:])),
	}
	count := binary.BigEndian.Uint32(rest[4:])
	if count == 0 || count > MaxDirectedTransactions {
		return DirectedRequest{}, fmt.Errorf("DirectedRequest of %d transactions, must be 1 to %d: %w", count,
			MaxDirectedTransactions, ErrCount)
	}
	listAt := directedTransactionsAt + int(count)*directedTransactionSize
	if len(b) < listAt {
		return DirectedRequest{}, fmt.Errorf("DirectedRequest of %d bytes and %d transactions: %w", len(b), count, ErrShort)
	}
	if r.Transactions, err = decodeDirectedTransactions(b[directedTransactionsAt:listAt]); err != nil {
		return DirectedRequest{}, fmt.Errorf("DirectedRequest: %w", err)
	}
	r.List = b[listAt:]
	if err := checkDirectedList(r.Transactions, r.List); err != nil {
		return DirectedRequest{}, fmt.Errorf("DirectedRequest: %w", err)
	}
	return r, nil
}

// AppendDirectedRequest appends a request. The list must fit the message.
func AppendDirectedRequest(dst []byte, r DirectedRequest) []byte {
	dst = appendHeader(dst, FuncDirectedRequest, r.TransactionContext)
	dst = binary.BigEndian.AppendUint32(dst, r.Device)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(r.Transactions)))
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.Requester))
	for i := range r.Transactions {
		dst = r.Transactions[i].append(dst)
	}
	return append(dst, r.List...)
}

// DirectedReply has the result of a request.
type DirectedReply struct {
	TransactionContext uint64 // of the request
	Status             DirectedStatus
	Done               uint32 // number of transactions that were carried out completely
	Bytes              uint64 // transferred, by those and by the next one
}

// Suits checks that the reply claims what the request can have led to: no more than it asks for,
// everything exactly if the status is DirectedOK, and as many bytes as the transactions have.
func (r *DirectedReply) Suits(q *DirectedRequest) error {
	asked := uint32(len(q.Transactions))
	if r.Done > asked || (r.Status == DirectedOK) != (r.Done == asked) {
		return fmt.Errorf("DirectedReply, %v, after %d transactions of %d: %w", r.Status, r.Done, asked, ErrCount)
	}
	least, most := q.Bytes(int(r.Done)), q.Bytes(int(min(r.Done+1, asked)))
	if r.Bytes < least || r.Bytes > most {
		return fmt.Errorf("DirectedReply, %d bytes after %d transactions, which have %d, the next one included %d: %w",
			r.Bytes, r.Done, least, most, ErrSize)
	}
	return nil
}

// DecodeDirectedReply decodes b, one whole message.
func DecodeDirectedReply(b []byte) (DirectedReply, error) {
	transaction, rest, err := body(b, FuncDirectedReply)
	if err != nil {
		return DirectedReply{}, err
	}
	if err := exactly(rest, 16); err != nil {
		return DirectedReply{}, fmt.Errorf("DirectedReply: %w", err)
	}
	return DirectedReply{
		TransactionContext: transaction,
		Status:             DirectedStatus(binary.BigEndian.Uint32(rest)),
		Done:               binary.BigEndian.Uint32(rest[4:]),
		Bytes:              binary.BigEndian.Uint64(rest[8:]),
	}, nil
}

// AppendDirectedReply appends a reply.
func AppendDirectedReply(dst []byte, r DirectedReply) []byte {
	dst = appendHeader(dst, FuncDirectedReply, r.TransactionContext)
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.Status))
	dst = binary.BigEndian.AppendUint32(dst, r.Done)
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
	transaction, rest, err := body(b, FuncDirectedConnect)
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
	transaction, rest, err := body(b, FuncDirectedConnected)
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
