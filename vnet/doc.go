// Package vnet knows the virtio_net_hdr that precedes every Ethernet frame on
// the data path: its ten bytes, the offloads it describes, and what has to be
// true of it before a frame from an untrusted peer may be given to the kernel.
//
// A frame here is always [virtio_net_hdr | Ethernet frame]. The header is the
// ten-byte form without num_buffers, little endian on every machine, at both
// ends: a length that differs between the ends is not reported by any kernel,
// the frames are just garbage.
//
// Everything in this package is safe for concurrent use on distinct frames and
// nothing that is called per frame allocates.
package vnet
