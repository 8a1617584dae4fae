package device

import (
	"maps"
	"slices"

	"github.com/splitnic/splitnic/fabric"
)

// Status returns the status. Any goroutine may call it.
func (d *Device) Status() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.record.status
	s.Events = maps.Clone(s.Events)
	s.DownPorts = slices.Sorted(maps.Keys(d.record.down))
	return s
}

// StatusOf returns the status of a fabric.Device, or nil if it is no Device.
func StatusOf(dev fabric.Device) *Status {
	d, ok := dev.(*Device)
	if !ok {
		return nil
	}
	s := d.Status()
	return &s
}
