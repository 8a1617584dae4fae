// Package messaging is the push-push messaging layer. It lends pools of registered buffers
// to the peer, transfers frames into the pools that the peer has lent, and keeps account
// of the elements of both.
//
// A [Conn] has the channels of one session. Channel 0 is the control channel. Channels 1
// to N are the data channels; each belongs to one [Port], a queue of a netdevice. Host and
// I/O unit use the same Conn, and no code here depends on which of them it is.
//
// # The life of a frame
//
// tx/sender.go and rx/receiver.go begin with a list of the stages of a frame, and their functions
// are in the same order. docs/architecture.md describes all stages of a frame in a row.
//
// In mode imm a transfer is an RDMA_WRITE_WITH_IMM. In mode indicate it is an RDMA_WRITE:
// when it has completed, the sender names the element in a BufferRDMAIndicate on the
// control channel, whose handler passes it to the receiver. A transfer of mode imm whose
// pool, element or length does not fit immediate data is indicated in the same way, while
// no other transfer is in flight. In the send modes a transfer is a SEND into a receive
// with memory.
//
// # Workers
//
// Each data channel has a sender and a receiver. The session has one control handler, and
// one pool manager, which creates and ends pools. Each of these is a goroutine that runs
// until it has nothing to do and then sleeps; the first three sleep in Go's poller, on an
// epoll set of the events that they react to. GOMAXPROCS should exceed the number of
// processors by the number of busy workers: while all Ps are taken, Go's scheduler runs a
// woken goroutine only after milliseconds.
//
// The control handler waits for no other goroutine. It puts messages for a sender, a
// receiver or the pool manager into their queues. All other goroutines may wait until the
// handler frees a slot of the control send queue.
//
// With Config.Poll, one worker for each data channel does the work of its sender, its
// receiver and the control handler (poll.go). When it needs a slot of the control send
// queue, it polls until one is free.
//
// The parts are packages, and their imports run one way: cq and memory know none of the others;
// core has what all share; control knows core; pools knows control; tx and rx know pools, and
// not each other. This package makes the parts from a Config (settings.go), passes the peer's
// messages to them (dispatch.go), and ends them.
//
// A sender shares the list of returned elements of a remote pool with the control handler.
// A goroutine that sends a control message holds the lock of the control send queue for
// that message. In mode imm no lock is taken for each frame.
//
// All workers except the pool manager are configured by the completion-queue [Handler] to
// which their channel is assigned. It determines the processors, the priority, and how
// many completions a worker handles in a row. Handlers and assignments can change during
// the session: see [Conn.SetHandling].
//
// # Pools
//
// Each pool has its own memory and region. The receiver of its channel adopts the pool and
// posts a receive for each element. The sender of its channel binds the windows that
// protect it, if any (see [Protection]). Then the pool is offered to the peer, where the
// sender of that channel uses it. bufpool.Pools determines the order of all steps until
// the end of the pool; Manager carries them out.
//
// # Bounds
//
// Data: a credit implies a free element, a posted receive, and room in the completion
// queue. Receives are posted for all elements of a pool before it is lent, and are posted
// again before elements are returned. When a pool has ended, its receives stay posted and
// count for the next pool.
//
// Control: a side never has more unprocessed control messages than the peer has receives
// posted. protocol.ControlReceives is the sum of
//
//   - for each pool, protocol.UpdatesPerPool updates, each sent because a quarter of the pool
//     is free, or because the pool ends and its last update acknowledges indications
//     (package bufpool explains the bound). The BufferRecvPool counts as one of them: an
//     update names used elements, and using one acknowledges the BufferRecvPool;
//   - for each data channel in mode indicate, protocol.IndicatesPerChannel indications. A
//     sender with that many unacknowledged indications sends no more of them. The return
//     of an element acknowledges the indication that named it, and all earlier ones. After
//     half as many indications without an update the target sends an update in any case,
//     so there are at most two of these updates. In mode imm it is a single indication and
//     its update, because no other transfer is in flight then. In the send modes it is
//     zero, because updates are sent only when a quarter is free;
//   - MaxRequests requests, each acknowledged by its reply, and therefore MaxRequests
//     replies; a flush request and the reply to that of the peer; a BufferRecvPoolGet,
//     acknowledged by the reply to a later request; and the offer of a pool in place of one
//     whose updates are not processed yet.
package messaging
