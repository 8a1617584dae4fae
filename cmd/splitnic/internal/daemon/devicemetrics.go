package daemon

import (
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/splitdrv/device"
)

var (
	descDevice = desc("splitnic_rdma_device_up", "1 while the RDMA device is there, 0 while it is gone.", "device")
	descLosses = desc("splitnic_rdma_device_losses_total",
		"How many times the RDMA device went away since the start.", "device")
	descEvents = desc("splitnic_rdma_device_events_total",
		"Asynchronous events of the RDMA device, by name; those of the whole device, in each card of an agent.", "device",
		"event")
)

// deviceMetrics emits what is known of an RDMA device; s is nil if nobody listens to it.
func deviceMetrics(emit emit, name string, s *device.Status) {
	if s == nil {
		return
	}
	emit = emit.with(name)
	emit.gauge(descDevice, flag(!s.Gone))
	emit.count(descLosses, s.Losses)
	emit.each(descEvents, fabric.EventKeys(), s.Events)
}
