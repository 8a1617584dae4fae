package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/splitnic/splitnic/verbs"
)

// chosenDevices are all devices, or the only one that is wanted. It reports that
// there is none.
func chosenDevices(r *report, only string) []verbs.DeviceInfo {
	devices, err := verbs.Devices()
	if err != nil {
		r.missing("devices", err.Error(), "modprobe ib_uverbs, and the driver of the adapter")
		return nil
	}
	chosen := slices.DeleteFunc(slices.Clone(devices), func(d verbs.DeviceInfo) bool {
		return only != "" && d.Name != only
	})
	if len(chosen) == 0 {
		noDevice(r, only, devices)
	}
	return chosen
}

// noDevice reports that the device to examine is not among those that there are.
func noDevice(r *report, only string, devices []verbs.DeviceInfo) {
	if len(devices) == 0 {
		r.missing("devices", "no RDMA device",
			"load the adapter's driver, or for Soft-RoCE: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0")
		return
	}
	names := make([]string, len(devices))
	for i, d := range devices {
		names[i] = d.Name
	}
	r.missing("devices", fmt.Sprintf("no RDMA device %q", only), "there are: "+strings.Join(names, ", "))
}
