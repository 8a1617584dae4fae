// Package fabrictest is a fabric in memory, and runs the conformance suite that
// every implementation of package fabric passes.
//
// # The memory fabric
//
// [New] makes a network; [Network.Device] opens a device on it. Queue pairs of
// any two devices of one network can be connected: the GID names the device,
// the QPN the queue pair. It runs on Linux only, needs neither privileges nor
// cgo, and can be used under the race detector.
//
// The poster's own goroutine carries a message out: it copies the bytes once,
// from the sender's region to the receiver's, and queues both completions. Only
// what cannot be carried out at once (a delay, a stall, a cut link, a receiver
// that is not ready) waits in the send queue, where one goroutine per such
// queue pair takes over until the queue has drained.
//
// Semantics follow the InfiniBand specification rather than any one device:
//
//   - A send queue slot is free again when a later signalled completion of the
//     queue pair has been polled; a receive slot when its completion has been.
//   - A key that is wrong, of another domain, out of bounds or of another queue
//     pair's window: the sender gets StatusRemAccessErr, both ends go to the
//     error state and flush.
//   - A SEND longer than the receive: StatusRemInvReqErr at the sender,
//     StatusLocLenErr at the receiver. A receive with a wrong key:
//     StatusRemOpErr and StatusLocProtErr. Both ends go to the error state.
//   - A wrong local key: StatusLocProtErr; only the sender's end fails.
//   - One piece of a request with a wrong local key fails all of it, and nothing
//     of it arrives.
//   - No receive posted: the message waits (Timing.RNRRetry 7), or fails with
//     StatusRNRRetryExcErr; [Counters].RNR counts it.
//   - A peer that is closed, failed, killed or cut off: StatusRetryExcErr after
//     Timing.DeadPeerTime, multiplied by [WithTimeScale].
//   - An unreliable connection drops what cannot be delivered, counts it in
//     [Counters].Drops and reports success.
//   - A completion queue that overflows loses completions, fails its queue
//     pairs, and Poll reports it once the queue is empty.
//
// Traffic classes and the like are taken and make no difference; completion
// queues have no moderation.
//
// The numbers of a region's local and remote key differ, so that code which
// mixes them up fails here too.
//
// # Files
//
// References between them run down this list:
//
//	suite, leaks, fault                what tests do with a network
//	device, domain                     what the fabric's contract makes objects by
//	bind, post                         posting to a queue pair
//	connection, pump                   its connection, and what has to wait
//	close, deliver, sendqueue          the ends of objects, and of requests
//	access, qp, totals, window         what requests may touch, and change
//	network, region, cq, key           names, memory, completions
//	objects                            the types, which have each other as fields
//	counters, event_linux
package fabrictest
