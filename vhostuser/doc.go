// Package vhostuser is the back end of the vhost-user protocol. It provides a virtio-net device for
// the front end, a virtual machine or a DPDK program, which shares its memory. Frames are copied
// between that memory and the memory of data channels. While there are frames, this needs no system
// calls.
//
// A [Device] has a socket to which one front end at a time is connected. The goroutine of the
// connection carries out the messages (handle.go). Only this goroutine changes memory and rings. A
// [Queue] is a messaging.Port. Its sender reads from rings by which the front end transmits. Its
// receiver writes to a ring by which the front end receives. A ring is locked for each burst and for
// each change, so that memory is unmapped only while no burst is in progress.
//
// # Trust
//
// The front end can write anything to the memory at any time. So an index, a descriptor or a header
// is loaded once before it is checked and used. A violation of the protocol ends the connection with
// an error that describes it, and has no other effect. The device then waits for the next front end.
// Only files in memory are mapped, so that no access waits for somebody. If a mapped file is
// truncated, the access fails (debug.SetPanicOnFault), which also ends the connection. One attack
// is not prevented: a front end that clears O_NONBLOCK of its call eventfd, and fills it, blocks
// the worker of its own port.
//
// There is no list of descriptors in flight (VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD). Buffers are
// returned to the driver in the call that takes them, or, if they were lent, in order (lend.go). So
// the used index determines which buffers were not returned.
//
// # Files
//
// Files refer only to files further down in this list:
//
//	serve                              a device, from Open to Close
//	handle                             handling of the messages of a front end
//	memtable, rings                    messages about memory, and about rings
//	frontend                           the connection with a front end
//	device                             state of a device, and methods that change it
//	lend, queue                        ports
//	receive, transmit                  frames to and from a ring
//	vring, waker                       start and stop of a ring; the descriptors on which ports sleep
//	split, packed                      the two kinds of rings
//	chain, memory, feature, message, address
package vhostuser
