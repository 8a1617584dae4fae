// Package steer finds out which frames are latency-sensitive, and makes the kernel put them
// into a queue of their own: the last one of a netdevice. The other frames are spread over the
// other queues by a hash of their flow.
//
// The rule (Classes) is assembled into an eBPF program. The kernel runs it for each frame when
// it chooses the queue: in a TAP device (TUNSETSTEERINGEBPF), or in a group of packet sockets
// (PACKET_FANOUT_EBPF). A macvtap has no such hook: the program runs before it, at its ingress
// (tc-bpf(8)).
//
// The following frames go to the latency queue, also behind up to two VLAN tags, if they are
// no longer than Rule.Limit:
//
//   - frames with a listed DSCP, of IPv4 or IPv6
//   - packets of up to Classes.Size bytes, if that is set
//   - ARP, neighbour discovery and ICMP echo
//
// # Order
//
// Frames of one flow that go to two queues can overtake each other. This harms protocols that
// notice: TCP takes an overtaken segment for lost. So a flow that sends a frame too long for
// the latency queue, such as a super-frame of 64 KiB, is not latency-sensitive: all its frames
// go with the bulk until the flow has paused for Pause, which is longer than frames wait in a
// queue. One case is left: when a flow changes from short to long frames, once for each pause,
// a long frame can overtake short ones that were sent immediately before.
//
// The frames of a flow have the same addresses and, with TCP, UDP and SCTP, the same ports.
// Both directions of a flow have the same hash.
package steer
