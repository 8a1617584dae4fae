package fabrictest

import "reflect"

// Counters has the counters of one queue pair, or the sums of all queue pairs of a device. All
// but Recvs, RecvWriteImms, AccessErrors and CQOverflows are counted at the sender.
type Counters struct {
	Sends     uint64 // messages delivered by SEND, with immediate data or without
	SendInvs  uint64 // … by SEND_WITH_INV
	Writes    uint64 // … by RDMA_WRITE
	WriteImms uint64 // … by RDMA_WRITE_WITH_IMM
	Reads     uint64 // … fetched by RDMA_READ
	Bytes     uint64 // payload of these
	Gathers   uint64 // messages among these whose data was posted in several pieces
	Inlines   uint64 // work requests with Inline among them
	Binds     uint64 // windows bound
	LocalInvs uint64 // windows unbound
	RNR       uint64 // tries that found no receive posted
	Retries   uint64 // tries that the peer did not answer
	Drops     uint64 // messages that an unreliable connection lost
	Flushes   uint64 // work requests flushed, of both queues
	Errors    uint64 // send requests that failed, without those flushed

	Recvs         uint64 // receives completed by a SEND
	RecvWriteImms uint64 // receives completed by an RDMA_WRITE_WITH_IMM
	AccessErrors  uint64 // messages rejected because of their key or bounds
	CQOverflows   uint64 // completion queues that overflowed; of a device only
}

// Commands counts the calls that a driver passes on to its device, and that need no other object
// to be made or destroyed.
type Commands struct {
	QueryQP   uint64 // QP.Failed
	QueryPort uint64 // PortMTU
	ModifyQP  uint64 // QP.Connect and QP.Fail
}

// All returns the number of all commands.
func (c Commands) All() uint64 { return c.QueryQP + c.QueryPort + c.ModifyQP }

func (c *Counters) add(o *Counters) {
	sum, part := reflect.ValueOf(c).Elem(), reflect.ValueOf(o).Elem()
	for i := range sum.NumField() {
		sum.Field(i).SetUint(sum.Field(i).Uint() + part.Field(i).Uint())
	}
}
