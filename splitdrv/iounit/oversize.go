package iounit

import "github.com/splitnic/splitnic/vnet"

// isOversize reports whether a frame for the LAN, or a segment of it, is longer
// than the card's MTU and one VLAN tag. Those have more tags. Cards and switches
// may pass or drop them, and most that drop them tell nobody.
func isOversize(op *vnet.WriteOp, card int) bool {
	return vnet.Longest(op.Head, len(op.Head)+len(op.Rest)) > card+vnet.EthLen+vnet.TagLen
}

// oversize counts those of all queues.
func (s *services) oversize() (n uint64) {
	for _, p := range s.ports {
		n += p.oversize.Load()
	}
	return n
}
