// Package fabrictest is a fabric in memory. It also runs the conformance suite that every
// implementation of package fabric must pass.
//
// # The memory fabric
//
// [New] creates a network; [Network.Device] opens a device on it. Queue pairs of any two
// devices of one network can be connected: the GID identifies the device, the QPN the queue
// pair. The fabric runs on Linux only, needs neither privileges nor cgo, and can be used under
// the race detector.
//
// The goroutine that posts a message also executes it: it copies the bytes once, from the
// sender's region to the receiver's, and queues both completions. Only a message that cannot be
// executed at once (a delay, a stall, a cut link, a receiver that is not ready) waits in the
// send queue. A separate goroutine for that queue pair then executes the queue until it is
// empty.
//
// Semantics follow the InfiniBand specification rather than any one device:
//
//   - A send queue slot is free again when its completion, or that of a later signaled request
//     of the queue pair, has been polled; a receive slot when its completion has been polled.
//   - A key that is wrong, of another domain, out of bounds or of another queue pair's window:
//     the sender gets StatusRemAccessErr, both ends go to the error state and flush.
//   - A SEND longer than the receive: StatusRemInvReqErr at the sender,
//     StatusLocLenErr at the receiver. A receive with a wrong key:
//     StatusRemOpErr and StatusLocProtErr. Both ends go to the error state.
//   - A wrong local key: StatusLocProtErr; only the sender's end fails.
//   - One piece with a wrong local key fails the whole request, and none of its data arrives.
//   - No receive posted: the message waits (Timing.RNRRetry 7), or fails with
//     StatusRNRRetryExcErr; [Counters].RNR counts it.
//   - A peer that is closed, failed, killed or cut off: StatusRetryExcErr after
//     a time-out for each try, multiplied by [WithTimeScale].
//   - An unreliable connection drops a message that cannot be delivered, counts it in
//     [Counters].Drops and reports success.
//   - A completion queue that overflows loses completions, fails its queue
//     pairs, and Poll reports it once the queue is empty.
//
// [WithFamily] makes the devices behave like the adapters of a family, as its drivers were read.
//
// Traffic class, service level and hop limit are accepted and have no effect. So is moderation,
// where the limits have it.
//
// The local and the remote key of a region differ, so that code that confuses them fails here
// too.
//
// # Files
//
// Files refer only to files further down in this list:
//
//	suite, leaks, fault, family, removal  functions for tests
//	device, domain                     creation of objects
//	bind, post                         posting to a queue pair
//	connection, pump                   connections, and waiting requests
//	close, deliver, sendqueue          closing of objects, execution of requests
//	access, qp, totals, window         access checks, and state that requests change
//	network, region, cq, key           names, memory, completions
//	objects                            the types, which refer to each other
//	counters, event_linux, adapter
package fabrictest
