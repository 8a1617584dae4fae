// Package tap makes TAP devices and moves frames through their queues.
//
// [Open] makes a device whose frames carry a virtio_net_hdr, so that
// checksums and segmentation can be left to a network card elsewhere.
// With Config.Plain the device is without this header, for kernels or uses that need every frame
// complete. Its queues look the same to the caller.
//
// A [Device] starts down and without carrier. It vanishes with its last
// descriptor, also when the process is killed.
//
// A device can outlive its process in two ways. The next process takes it over with all
// settings of administrators and programs:
//
//   - A service manager keeps copies of the descriptors, which the next process passes to
//     [Adopt]. The device then also keeps its carrier and the frames that wait in its queues.
//   - A persistent device (Config.Persist) is found by its name. The kernel turns its carrier
//     off for as long as no process has it open.
//
// [Device.Watch] reports what the operating system requires of a device: addresses, multicast
// groups, VLANs, all frames.
//
// # Files
//
// References between them run down this list:
//
//	watch, solicit, steer                     a device in use
//	open, adopt, resume, plain, attach        a device that is being opened
//	device, label                             its attributes
//	subscription, tun, glance, query, state,  its state in the kernel, and its namespace
//	location, link
//	config, batch, queue, pace, ioctl
//
// # Concurrency
//
// The methods of a Device may be called from any goroutine. Of a [Queue], one
// goroutine at a time may call ReadFrames and one WriteFrames.
package tap
