// Package steer says which frames are latency-sensitive, and makes the kernel
// put them into a queue of their own: the last one of a netdevice. The rest is
// spread over the other queues by a hash of its flow.
//
// The rule (Classes) is assembled into an eBPF program, which runs for each
// frame in the kernel, where a queue is chosen: in a TAP device
// (TUNSETSTEERINGEBPF), in a group of packet sockets (PACKET_FANOUT_EBPF), and,
// because a macvtap has no such hook, before one, at its ingress (tc-bpf(8)).
//
// To the latency queue go
//
//   - frames with a listed DSCP, of IPv4 or IPv6,
//   - packets of up to Classes.Size bytes, where that is set,
//   - ARP, neighbour discovery and ICMP echo,
//
// behind up to two VLAN tags, if they are no longer than Rule.Limit.
//
// # Order
//
// The frames of a flow that go to two queues can overtake each other. That is
// harmless for nobody but who would notice: TCP takes a segment that was
// overtaken for lost. So a flow that sends a frame that is too long for the
// latency queue, such as a super-frame of 64 KiB, is no latency-sensitive one,
// and all its frames go with the bulk until it has paused for Pause, which is
// longer than frames wait in a queue. What is left is the change from short to
// long frames, once for each pause, where a long frame can overtake short ones
// that were sent immediately before.
//
// A flow is what has the same addresses and, with TCP, UDP and SCTP, ports.
// Both directions of it have the same hash.
package steer
