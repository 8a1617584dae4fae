// Package discard makes the kernel drop whole IP datagrams before a queue that
// is about to be full, instead of some fragments of each in a queue that is:
// early packet discard, as ATM switches do it for cells.
//
// A datagram of 64 KiB is 45 frames with an MTU of 1500, and the loss of one of
// them loses all. A queue with tail drop that is offered more than is taken
// from it accepts a part of almost every datagram: it carries fragments that
// are worth nothing, and the receiver keeps them for 30 s (ipfrag_time) until
// its memory for that is full (ipfrag_high_thresh), after which it reassembles
// nothing at all. A TAP device does not stop its sender (up to Linux 7.2), and
// fragments are not super-frames: no offload keeps a datagram together.
//
// An eBPF program judges each frame before the queue, by how many wait there:
//
//   - the first fragment of a datagram, and a frame that is no fragment, is
//     dropped if the queue has no more than a reserve left;
//   - further fragments go into the reserve, unless one before was dropped.
//
// The program counts the frames that it lets pass. The reader counts what it
// has read, in memory that both share (Meter), and says when the queue is empty:
// so whatever error there is in the difference does not last. If frames wait
// and nobody reads for Patience, the program lets everything pass: the reader
// may be gone, or be a process that does not count.
package discard
