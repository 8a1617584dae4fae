package fabric

// Opcode is the operation of a work request or of a completion. The zero value is not an
// opcode.
type Opcode uint8

// Opcodes of work requests. The completion of a request has the same opcode, except that
// OpSendInv and OpSendImm complete as OpSend, and OpWriteImm as OpWrite (ibv_poll_cq(3)).
const (
	OpSend     Opcode = iota + 1 // SEND into a posted receive
	OpSendInv                    // SEND that invalidates SendWR.RKey, a window of the receiver
	OpWrite                      // RDMA_WRITE: consumes no receive
	OpWriteImm                   // RDMA_WRITE_WITH_IMM: consumes one posted receive and transfers SendWR.Imm
	OpLocalInv                   // LOCAL_INV of SendWR.RKey, a window of this side
	OpBind                       // BIND_MW; posted by QP.Bind, seen here only in completions
	// OpRead is RDMA_READ: Len bytes of the peer's memory to Addr, in a region with
	// LocalWrite. It is one record, and never Inline.
	OpRead
	OpSendImm // SEND with immediate data, SendWR.Imm
)

// Opcodes of the completions of receives.
const (
	OpRecv         Opcode = iota + 128 // a SEND arrived
	OpRecvWriteImm                     // an RDMA_WRITE_WITH_IMM arrived
)

// Flags of a work request.
type Flags uint8

const (
	// Signaled requests a completion on success. A failed request always completes.
	Signaled Flags = 1 << iota
	// Solicited makes the completion at the receiver solicited, so that it raises an event on
	// a CQ armed for solicited completions only.
	Solicited
	// Inline copies the data during the post, so that the buffer may be reused at once. The
	// total length of all pieces must not exceed QP.MaxInline.
	Inline
	// Fence delays the request until earlier reads and atomics are done.
	Fence
	// More marks a record whose request continues in the next record. Of that record only
	// Addr, Len, LKey and More are used. See SendWR.
	More
)

// SendWR is one work request for a send queue, or one piece of its data.
//
// A request with data in several places has one record for each piece of data, all with More
// except the last. The request is one message, the concatenation of the pieces, and takes one
// entry of the send queue and one of the completion queue. The first record describes the
// request and its first piece, each other record only one more piece. There may be up to
// QPConfig.MaxSGE records, including pieces of length 0, which need no LKey. A post fails with
// EINVAL, and n is the index of the first record of the request, for: More on the last record
// of the call, too many pieces, more than 2³²-1 bytes, and More with an opcode that sends no
// data.
//
// Unless Inline is set, the memory at Addr must not change until the request, or a later
// signaled request of the same queue, has completed.
type SendWR struct {
	ID         uint64 // returned in Completion.ID
	Addr       uint64 // local virtual address of the data
	RemoteAddr uint64 // OpWrite, OpWriteImm, OpRead: address in the peer's region or window
	Len        uint32 // bytes; 0 sends nothing and needs no LKey
	LKey       uint32 // key of the local region that contains Addr, per piece; ignored with Inline
	RKey       uint32 // OpWrite*, OpRead: the peer's key. OpSendInv, OpLocalInv: the key to invalidate
	Imm        uint32 // Op…Imm: immediate data, in host byte order on both sides
	Op         Opcode
	Flags      Flags
	_          [6]byte
}

// RecvWR is one work request for a receive queue. With Len 0 it has no memory. That suffices
// for an OpWriteImm, which contains its own remote address.
type RecvWR struct {
	ID   uint64
	Addr uint64
	Len  uint32
	LKey uint32
}

// CompletionFlags are the flags of a successful completion of a receive.
type CompletionFlags uint8

const (
	WithImm CompletionFlags = 1 << iota // Imm is valid
	WithInv                             // InvKey is valid: the peer invalidated that window
)

// Completion is one entry of a completion queue. Read Status first: unless it
// is StatusSuccess only ID, Status, VendorErr and QPN are valid
// (ibv_poll_cq(3)).
type Completion struct {
	ID        uint64
	Status    Status
	VendorErr uint32
	QPN       uint32
	Len       uint32 // receives: number of received bytes
	Imm       uint32
	InvKey    uint32
	Op        Opcode
	Flags     CompletionFlags
	_         [6]byte
}

// Err returns nil for a successful completion and a *WCError otherwise.
func (c *Completion) Err() error {
	if c.Status == StatusSuccess {
		return nil
	}
	return &WCError{Status: c.Status, VendorErr: c.VendorErr, QPN: c.QPN, ID: c.ID}
}
