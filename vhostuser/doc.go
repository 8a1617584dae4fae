// Package vhostuser is the back end of the vhost-user protocol: a virtio-net device for
// a virtual machine or a DPDK program, the front end, which shares its memory. Frames
// are copied between that memory and a data channel's, without system calls while
// there are any.
//
// A [Device] is a socket that one front end at a time is connected to. The goroutine of
// the connection carries out its messages (handle.go); it is the only one that changes
// memory and rings. A [Queue] is a messaging.Port: its sender reads from the rings that
// the front end transmits by, its receiver writes to one that it receives by. A ring is
// locked for each burst, and for each change, so that memory is unmapped only when no
// burst is under way.
//
// # Trust
//
// Whoever is behind the socket may write anything to the memory at any time. What is
// decided upon is loaded once: an index, a descriptor, the header of a frame. What a
// front end may not do ends its connection with an error that says what it was, and
// nothing else; the device then waits for the next one. A file that is truncated under
// its mapping makes the access fail (debug.SetPanicOnFault), which ends the connection
// too. What is not guarded against: a front end that takes O_NONBLOCK from the eventfd by
// which it is called, and fills that, stops the worker of its own port.
//
// There is no list of descriptors in flight (VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD):
// buffers are given back in the call that takes them, or in order when what is lent of
// them is returned (lend.go), so that the used index says which were not.
//
// # Files
//
// References between them run down this list:
//
//	serve                              a device, from Open to Close
//	handle                             messages of a front end, carried out
//	memtable, rings                    those that change memory, and rings
//	frontend                           the connection with a front end
//	device                             what it has, and what of it others change
//	lend, queue, waker                 ports, and what they sleep at
//	receive, transmit                  frames to and from a ring
//	vring                              a ring that starts and stops
//	split, packed, atomics             the two kinds of rings
//	finish, chain, memory, feature, message, address
package vhostuser
