package fabric

// Opcode says what a work request does, or what a completion completed. The
// zero value is not an opcode.
type Opcode uint8

// Opcodes of work requests; each is also the opcode of its completion, but for
// OpSendInv and OpSendImm, which complete as OpSend, and OpWriteImm, which
// completes as OpWrite (ibv_poll_cq(3)).
const (
	OpSend     Opcode = iota + 1 // SEND into a posted receive
	OpSendInv                    // SEND that invalidates SendWR.RKey, a window of the receiver
	OpWrite                      // RDMA_WRITE: consumes nothing at the receiver
	OpWriteImm                   // RDMA_WRITE_WITH_IMM: consumes one posted receive, hands over SendWR.Imm
	OpLocalInv                   // LOCAL_INV of SendWR.RKey, a window of our own
	OpBind                       // BIND_MW; posted by QP.Bind, seen here only in completions
	// OpRead is RDMA_READ: Len bytes of the peer's memory to Addr, in a region with
	// LocalWrite. It is one record, and never Inline.
	OpRead
	OpSendImm // SEND with immediate data, SendWR.Imm
)

// Opcodes that only completions of receives have.
const (
	OpRecv         Opcode = iota + 128 // a SEND arrived
	OpRecvWriteImm                     // an RDMA_WRITE_WITH_IMM arrived
)

// Flags of a work request.
type Flags uint8

const (
	// Signaled asks for a completion on success. A failed request completes
	// whether it is set or not.
	Signaled Flags = 1 << iota
	// Solicited makes the completion at the receiver a solicited one, which
	// wakes a CQ armed for solicited events only.
	Solicited
	// Inline copies the data while posting; the buffer may be reused at once.
	// The length, of all pieces together, may not exceed QPConfig.MaxInline.
	Inline
	// Fence holds the request back until earlier reads and atomics are done.
	Fence
	// More says that the data of the request goes on in the next record, a
	// piece of which only Addr, Len, LKey and More count. See SendWR.
	More
)

// SendWR is one work request for a send queue, or one piece of its data.
//
// A request whose data lies in several places takes as many records, all but
// the last with More: it is one message, the pieces one behind the other, and
// one entry of the send queue and of the completion queue. The first record
// says everything about the request, the others only where a piece is. There
// may be up to QPConfig.MaxSGE records, pieces of length 0 included, which need
// no LKey. A post refuses, with EINVAL and n at the first record of the
// request: More on the last record of the call, too many pieces, more than
// 2³²-1 bytes, and More with an opcode that sends no data.
//
// The memory at Addr must stay untouched until the request completes, or a
// later signalled request of the same queue does; unless Inline is set.
type SendWR struct {
	ID         uint64 // handed back in Completion.ID
	Addr       uint64 // local virtual address of the data
	RemoteAddr uint64 // OpWrite, OpWriteImm, OpRead: address in the peer's region or window
	Len        uint32 // bytes; 0 sends nothing and needs no LKey
	LKey       uint32 // key of the local region that holds Addr, of each piece its own; ignored with Inline
	RKey       uint32 // OpWrite*, OpRead: the peer's key. OpSendInv, OpLocalInv: the key to invalidate
	Imm        uint32 // Op…Imm: immediate data, in host byte order on both sides
	Op         Opcode
	Flags      Flags
	_          [6]byte
}

// RecvWR is one work request for a receive queue. With Len 0 it has no memory:
// enough for an OpWriteImm, which brings its own address.
type RecvWR struct {
	ID   uint64
	Addr uint64
	Len  uint32
	LKey uint32
}

// CompletionFlags qualify a successful completion of a receive.
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
	Len       uint32 // receives: bytes that arrived
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
