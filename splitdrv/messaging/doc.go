// Package messaging is the push-push messaging layer: it lends pools of
// registered buffers to the peer, writes frames into the pools that the peer
// lent, and keeps the books.
//
// A [Conn] is one session's set of channels. Channel 0 is the control channel,
// channels 1 to N are the data channels, each tied to one [Port], a queue of a
// netdevice. Both halves of the driver use the same Conn; nothing here knows
// which one it is.
//
// # The life of a frame
//
//	1 sender      waits until it has a credit, a free send slot and a frame
//	2             reads the frame from the port into the registered slot
//	3             takes the smallest element that fits from the peer's pools
//	4             posts an RDMA_WRITE_WITH_IMM, a batch of them per doorbell
//	5 receiver    polls the completion: pool, element and length
//	6             checks them, hands the frame to its port from the element itself
//	7             posts the receive again, a batch of them per doorbell
//	8             returns elements in a BufferRecvPoolUpdate when a quarter of a pool is free
//	9 control     (at the sender) posts the update's receive again, then makes the credits usable
//
// # Workers
//
// Each data channel has a sender and a receiver, the session has one control
// handler; each is a goroutine that runs until it has nothing to do and then
// sleeps in Go's poller on an epoll set of what it has to react to. GOMAXPROCS
// should exceed the number of processors by the number of busy workers: with
// every P taken, Go's scheduler serves a woken goroutine only after
// milliseconds.
//
// Locks: a sender shares a grant's list of returned elements with the control
// handler; whoever sends a control message holds the lock of the control send
// queue for that message. Nothing is locked per frame.
//
// # Bounds
//
// Data: one credit stands for an element, a posted receive and room in the
// completion queue. Receives are posted for all elements of a channel before
// the pools are lent, and posted again before the elements go back.
//
// Control: a side never has more control messages unprocessed than the peer
// has receives posted. At most protocol.UpdatesPerPool updates per pool are on
// their way (see package bufpool for the argument), one BufferRecvPool at the
// start, MaxRequests requests, each acknowledged by its reply, and so at most
// MaxRequests replies. protocol.ControlReceives adds that up.
package messaging
