// Package tap makes TAP devices and moves frames through their queues.
//
// [Open] makes a device whose frames carry a virtio_net_hdr, so that
// checksums and segmentation can be left to a network card elsewhere.
// [OpenPlain] makes one without, for kernels or uses that want every frame
// complete; its queues look the same to the caller.
//
// A [Device] starts down and without carrier. It vanishes with its last
// descriptor, also when the process is killed.
//
// [Device.Watch] tells what the operating system wants of a device: addresses,
// groups, VLANs, all frames.
//
// # Concurrency
//
// The methods of a Device may be called from any goroutine. Of a [Queue], one
// goroutine at a time may call ReadFrame and one WriteFrame.
package tap
