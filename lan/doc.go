// Package lan gives each host of an I/O unit its own port on a network card
// that all of them share.
//
// There are four back-ends, chosen by the specification given to [Open]:
//
//   - "macvtap:eth1", or just "eth1", makes a macvtap in bridge mode. The
//     kernel sorts frames by MAC address and hands each host only its own.
//     Hosts on one card reach each other. The unit's own addresses on the card
//     cannot be reached. A host that is promiscuous, or has further addresses,
//     gets in addition what a packet socket beside the macvtap receives: what
//     arrives at the card, but not what other hosts on the same card send.
//
//   - "packet:eth1" opens AF_PACKET sockets on the card, which becomes
//     promiscuous. It makes no netdevice.
//     Each host's socket sees every frame of the card, those of other hosts
//     included, and filters; the host must be able to receive checksum and TCP
//     offloads, because a packet socket hands out super-frames as they are.
//
//   - "tap:br0" makes a TAP device that is a port of a bridge. Like a port of a
//     switch it gets what the bridge has learned to be behind it, and what the
//     bridge floods, promiscuous or not. This is what a host needs that bridges
//     virtual machines into its device.
//
//   - "vhost-user:/run/splitnic/lan" has a socket for each host in that directory, named
//     by its address: a virtio-net device, of which a switch in user space has the driver
//     (DPDK's virtio_user). The switch decides what it sends where. Nothing of the kernel's
//     is involved.
//
// The card's generic receive offload should stay on: it is what turns the
// wire's 1500-byte frames into super-frames. Its large receive offload has to
// be off (ethtool -K eth1 lro off): frames that it merged cannot be cut again.
// With macvtaps, so has its filter of VLANs where hosts use any (ethtool -K eth1
// rx-vlan-filter off): it knows only the VLANs of the unit itself.
//
// # Concurrency
//
// The methods of an [Interface] may be called from any goroutine. Of a
// [Queue], one goroutine at a time may call ReadFrame and one WriteFrame.
package lan
