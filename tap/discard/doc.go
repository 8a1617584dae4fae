// Package discard makes the kernel drop whole IP datagrams before a queue that is nearly full,
// instead of some fragments of each datagram before a queue that is full. ATM switches do this
// for cells: early packet discard.
//
// A datagram of 64 KiB is 45 frames with an MTU of 1500, and if one of them is lost the whole
// datagram is. An overloaded queue with tail drop accepts a part of almost every datagram. It
// carries useless fragments, which the receiver keeps for 30 s (ipfrag_time) until its memory
// for fragments is full (ipfrag_high_thresh). The receiver then reassembles nothing at all. A
// TAP device does not stop its sender (up to Linux 7.2), and fragments are not super-frames:
// no offload keeps a datagram together.
//
// An eBPF program checks each frame before the queue, by the number of frames that wait there:
//
//   - The first fragment of a datagram, or a frame that is not a fragment, is dropped if only
//     the reserve of the queue is left.
//   - Further fragments go into the reserve, unless an earlier fragment was dropped.
//
// The program counts the frames that it lets pass. The reader counts the frames that it has
// read, in memory that both share (Meter), and reports when the queue is empty. This corrects
// any error in the difference of the two counters. If frames wait and none is read for
// Patience, the program lets all frames pass: the reader may be gone, or be a process that
// does not count.
package discard
