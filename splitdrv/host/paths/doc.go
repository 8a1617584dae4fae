// Package paths divides the queues of a host's netdevice between the path through the
// I/O unit and direct paths to other hosts.
//
// Frames of a flow never overtake each other when their path changes, in either
// direction: they are held while what went before is on its way. On the way to a
// direct path markers follow the frames through each queue of the I/O unit's path, and
// the peer says when they have come. On the way back the owner of the path has the
// direct connection run dry before it closes the path.
//
// A change of paths is one step under the locks of all queues (Split.change).
//
// # Files
//
// References between them run down this list:
//
//	path                  a direct path, from its Open to its Close
//	split                 the netdevice, and how paths change
//	port, judge           both ends of a path: what a data channel reads and writes
//	input                 reading for one sender
//	queue                 who may read a queue, and whose the frames are
//	shared, table, route  which frames go which way, published for all who move frames
//	reader                what waits for a sender, and wakes it
//	peer, counts, state, flow, frame, arrivals, ring
package paths
