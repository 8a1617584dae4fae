package verbs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Counters are the counters of one port of an RDMA device by their names in
// sysfs: those of the port (port_xmit_data, in units of four bytes, …) and
// those of the driver (rcvd_rnr_err, out_of_buffer, …). Which there are depends
// on the device; one that cannot be read is left out. The kernel may answer with
// values that are a few milliseconds old.
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

// readCounters adds the files of dir that hold a number to m. Among them is
// "lifespan", which is not a counter but how long the values are cached.
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
