// Package paths divides the queues of a host's netdevice between the path through the
// I/O unit and direct paths to other hosts.
//
// When the path of a flow changes, in either direction, its frames never overtake each
// other: they are held while earlier ones are in flight. When frames move to a direct path,
// markers are sent behind the earlier frames through each queue of the path through the I/O
// unit, and the peer reports their arrival. When frames move back, the owner of the path
// waits until the direct connection has delivered everything, and then closes the path.
//
// Paths change in one step under the locks of all queues (Split.change).
//
// # Files
//
// References between files run down this list:
//
//	path           a direct path, from Open to Close
//	split          the netdevice, and changes of paths
//	port           the ports of both kinds of paths, which data channels read and write
//	input          reading for one sender
//	queue          the right to read a queue, and the distribution of its frames
//	shared, route  which frames use which path, for all goroutines that move frames
//	reader         frames that wait for a sender, and its wake-up
//	peer, counts, flow, ring
package paths
