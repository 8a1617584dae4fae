// Package lan gives each host of an I/O unit its own port on a network card
// that all of them share.
//
// There are several kinds of these ports. The specification given to [Open] begins with the kind:
// [Macvtap], [Packet], [TAP] or [VhostUser]. A kind is a row of the table kinds, which lies in the
// kind's file. What depends on the kind elsewhere asks the row ([Facts]).
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
