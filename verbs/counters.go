package verbs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Counters returns the counters of one port of an RDMA device by their sysfs names: port
// counters (port_xmit_data, in units of four bytes, …) and driver counters (rcvd_rnr_err,
// out_of_buffer, …). The set depends on the device. A counter that cannot be read is left
// out. The values may be a few milliseconds old, because the kernel caches them.
func Counters(device string, port int) (map[string]uint64, error) {
	return countersIn(classDir, device, port)
}

func countersIn(class, device string, port int) (map[string]uint64, error) {
	dev := filepath.Join(class, device)
	dir := filepath.Join(dev, "ports", strconv.Itoa(port))
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("counters of RDMA device %s port %d: %w", device, port, err)
	}
	m := make(map[string]uint64)
	for _, d := range []string{
		filepath.Join(dir, "counters"),
		filepath.Join(dir, "hw_counters"),
		filepath.Join(dev, "hw_counters"),
	} {
		if err := readCounters(d, m); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("counters of RDMA device %s port %d: %w", device, port, err)
		}
	}
	return m, nil
}

// readCounters adds each file of dir that holds a number to m. It skips "lifespan", which is
// not a counter but the time for which the kernel caches the values.
func readCounters(dir string, m map[string]uint64) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == "lifespan" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			continue
		}
		if v, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err == nil {
			m[e.Name()] = v
		}
	}
	return nil
}
