// Package lan gives each host of an I/O unit its own port on a network card
// that all of them share.
//
// There are four back-ends, chosen by the specification given to [Open]:
//
//   - "macvtap:eth1", or just "eth1", makes a macvtap in bridge mode. The kernel switches
//     frames by MAC address, and each host receives only its own. Hosts on one card reach
//     each other. They cannot reach the I/O unit's own addresses on the card. A promiscuous
//     host, or one with further addresses, also gets frames from a packet socket beside the
//     macvtap. This receives frames that arrive at the card, but not those that other hosts
//     on the same card send.
//
//   - "packet:eth1" opens AF_PACKET sockets on the card, which becomes promiscuous, and
//     makes no netdevice. Each host's socket sees every frame of the card, including those
//     of other hosts, and filters them. The host must be able to receive checksum and TCP
//     offloads, because a packet socket passes super-frames on unchanged.
//
//   - "tap:br0" makes a TAP device that is a port of a bridge. Like a port of a switch, it
//     gets frames to the addresses that the bridge has learned at the port, and frames that
//     the bridge floods, whether or not the host is promiscuous. A host that bridges virtual
//     machines into its device needs this back-end.
//
//   - "vhost-user:/run/splitnic/lan" has a socket for each host in that directory, named
//     after the host's address. It is a virtio-net device, and a switch in user space has
//     the driver (DPDK's virtio_user). The switch decides to which port it sends a frame.
//     The kernel's network stack is not involved.
//
// Generic receive offload of the card should stay on: it merges the 1500-byte frames of the
// wire into super-frames. Large receive offload of the card has to be off (ethtool -K eth1
// lro off): merged frames cannot be segmented again. With macvtaps, the card's VLAN filter
// has to be off as well if hosts use VLANs (ethtool -K eth1 rx-vlan-filter off): the filter
// has only the VLANs of the I/O unit itself.
//
// # Concurrency
//
// The methods of an [Interface] may be called from any goroutine. One goroutine at a time
// may read from a [Queue], while another one writes to it.
package lan
