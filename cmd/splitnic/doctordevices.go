package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/verbs"
)

// chosenDevices returns all devices, or the one called only if that is not empty. If there is
// none, it adds an error to r.
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
		noDevice(r, only, devices, kernelDevices())
	}
	return chosen
}

// kernelDevices returns the names of the kernel's RDMA devices, whether or not libibverbs has the
// library of their driver.
func kernelDevices() (names []string) {
	entries, _ := os.ReadDir("/sys/class/infiniband") // without a device there may be no directory
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func noDevice(r *report, only string, devices []verbs.DeviceInfo, kernel []string) {
	switch {
	case len(devices) == 0 && len(kernel) > 0:
		r.missing("devices", "libibverbs has no driver for those of the kernel: "+strings.Join(kernel, ", "),
			"apt install ibverbs-providers, or what has the drivers of libibverbs on this distribution")
		return
	case len(devices) == 0:
		r.missing("devices", "no RDMA device",
			"load the adapter's driver, or for Soft-RoCE: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0")
		return
	}
	r.missing("devices", fmt.Sprintf("no RDMA device %q", only), "there are: "+strings.Join(daemon.DeviceNames(devices), ", "))
}
