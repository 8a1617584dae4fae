// Package vnet handles the virtio_net_hdr that precedes every Ethernet frame on the data path:
// its ten bytes, the offloads that it describes, and the checks that a frame from an untrusted
// peer has to pass before it may be given to the kernel.
//
// In this package a frame is always [virtio_net_hdr | Ethernet frame]. The header is the
// ten-byte form without num_buffers, little endian on every machine, at both ends. If the two
// ends use different lengths no kernel reports this: the frames are just garbage.
//
// All functions are safe for concurrent use on distinct frames, and the functions that are
// called for each frame do not allocate.
package vnet
