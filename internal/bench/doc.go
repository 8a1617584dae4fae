// Package bench measures the messaging layer without a netdevice. Frames are generated and discarded
// in memory, so that only the cost of the layer is measured.
//
// A measurement has two ends. The initiator specifies the measurement and gets the result. The
// target counts frames, or echoes them. [Local] has both ends in this process. [Client] and [Server]
// are ends on two nodes. They authenticate each other by package session, with keys derived from a
// [Secret].
//
// # How it is measured
//
// The Ethernet header of each frame has the purpose of the frame. To measure throughput, the sender
// sends frames to warm up, then timed frames, and marks the last one. The receiver measures the time
// from the first timed frame, which it does not count, to the last one, and reports its count in a
// frame. So a message counts when it has been delivered. To measure latency, the initiator sends a
// frame when the one before has been echoed, and records half of the time between.
//
// # Concurrency
//
// The sender of a data channel reads its port, and the receiver writes to it. They are two
// goroutines, or one if it polls. State that both use is atomic. State of all queues is used only at
// the beginning and at the end of a measurement, except that a sender claims many messages at a time.
package bench
