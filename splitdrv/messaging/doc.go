// Package messaging is the push-push messaging layer: it lends pools of
// registered buffers to the peer, transfers frames into the pools that the peer
// lent, and keeps the books.
//
// A [Conn] is one session's set of channels. Channel 0 is the control channel,
// channels 1 to N are the data channels, each tied to one [Port], a queue of a
// netdevice. Both endpoints use the same Conn; nothing here knows
// which one it is.
//
// # The life of a frame
//
// The stages are at the top of sender.go and receiver.go, in whose order the
// functions follow; docs/architecture.md has them one after the other.
//
// In mode imm a transfer is an RDMA_WRITE_WITH_IMM. In mode indicate it is an
// RDMA_WRITE, whose completion the sender awaits before it names the element in a
// BufferRDMAIndicate on the control channel, from where the receiver takes it; what
// in mode imm does not fit immediate data goes the same way, alone. In the send
// modes it is a SEND into a receive with memory.
//
// # Workers
//
// Each data channel has a sender and a receiver, the session has one control
// handler and one pool manager, which looks after the number of pools; each is a
// goroutine that runs until it has nothing to do and then sleeps, the first
// three in Go's poller on an epoll set of what they have to react to. GOMAXPROCS
// should exceed the number of processors by the number of busy workers: with
// every P taken, Go's scheduler serves a woken goroutine only after
// milliseconds.
//
// Who waits for whom: the control handler waits for nobody. What it has for a
// sender, a receiver or the pool manager goes into a queue of theirs. All others may
// wait for the handler to free a slot of the control send queue.
//
// With Config.Poll one worker for each data channel does what its sender, its receiver
// and the control handler do otherwise (poll.go). One that lacks a slot of the control
// send queue polls for it.
//
// References between files run one way: from the Conn over what handles control
// messages, the sender and the receiver, to the pool manager, which knows their
// queues, and to what they all have in common (shared.go).
//
// A sender shares a remote pool's list of returned elements with the control handler;
// whoever sends a control message holds the lock of the control send queue for
// that message. In mode imm nothing is locked per frame.
//
// Each of them but the pool manager follows a completion-queue [Handler], which its
// channel is assigned to: it says on which processors, with which priority, and
// for how long at a time the worker works. Handlers and assignments can change
// while the session lasts; see [Conn.SetHandling].
//
// # Pools
//
// Each pool has memory and a region of its own. The receiver of its channel adopts it
// and posts the receives that its elements stand for, the sender of its channel binds
// the windows that protect it, if any (see [Protection]), and only then is it offered.
// The initiator hands it to the sender of that channel. What comes after what, from
// there to the end of the pool, is in bufpool.Pools; poolManager hands it on.
//
// # Bounds
//
// Data: one credit stands for an element, a posted receive and room in the
// completion queue. Receives are posted for all elements of a pool before it is
// lent, and posted again before the elements go back. Receives of a pool that
// has gone stay posted and stand for the elements of the next one.
//
// Control: a side never has more control messages unprocessed than the peer has
// receives posted; protocol.ControlReceives adds up
//
//   - for each pool, protocol.UpdatesPerPool updates, each due because a quarter
//     of that pool is free (package bufpool has the argument), and before them
//     the BufferRecvPool;
//   - for each data channel in mode indicate, protocol.IndicatesPerChannel
//     indications: a sender with so many unacknowledged sends no more, the return
//     of an element that one named acknowledges it and those before, and after
//     half as many without an update the target sends one in any case, of which
//     there are therefore at most two. In mode imm a single indication and its
//     update, because nothing else happens on the channel meanwhile; in the
//     send modes nothing, because all their updates are due;
//   - MaxRequests requests, each acknowledged by its reply, and so at most
//     MaxRequests replies; a flush and the reply to the peer's; a
//     BufferRecvPoolGet, acknowledged by the reply to a later request; the update
//     that acknowledges indications before their pool goes; and what was sent for
//     a pool that has just gone, when the next one is offered.
package messaging
