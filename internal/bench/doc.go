// Package bench measures the messaging layer without any netdevice: frames come
// from nowhere and go nowhere, so that what is left is the cost of the layer.
//
// A measurement has two ends. The initiator says what is measured and has the
// result; the target counts, or echoes. [Local] has both in this process,
// [Client] and [Server] one each on two nodes, which find and authenticate each
// other by package session with keys derived from a [Secret].
//
// # How it is measured
//
// Each frame says what it is for in its Ethernet header. For throughput the
// sender sends frames to warm up, then timed ones, and marks the last. The
// clock runs at the receiver, from the first timed frame, which does not count,
// to the last; the receiver then reports what it counted in a frame of its own.
// So a message counts when it has been delivered. For latency the initiator
// sends the next frame when the last one has come back, and notes half of the
// time in between.
//
// # Concurrency
//
// The ports are read by the sender and written by the receiver of their data
// channel, one goroutine each, or the same one if it polls. What they share is
// atomic. What belongs to all queues is touched at the beginning and at the end
// of a measurement only, but for the claims of a sender, which are of many
// messages at a time.
package bench
