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
// There are two ways for it to outlive its process, and to be taken by the next
// one with everything that administrators and programs have given it. A service
// manager that keeps copies of the descriptors hands them to [Adopt]: then the
// device keeps its carrier as well, and the frames that wait in its queues. A
// persistent device (Config.Persist) is found by its name: the kernel takes its
// carrier away for as long as no process has it.
//
// [Device.Watch] tells what the operating system wants of a device: addresses,
// groups, VLANs, all frames.
//
// # Files
//
// References between them run down this list:
//
//	watch, solicit, steer, active             a device in use
//	open, adopt, resume, discard, plain,      a device that is being opened
//	attach
//	device, label                             its attributes
//	subscription, tun, glance, query, state,  what the kernel says of it, and where it is
//	location, link
//	config, batch, parts, queue, ioctl
//
// # Concurrency
//
// The methods of a Device may be called from any goroutine. Of a [Queue], one
// goroutine at a time may call ReadFrame and one WriteFrame.
package tap
