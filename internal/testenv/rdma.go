package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// RDMACounter returns a counter that the driver of an RDMA device keeps of its first port.
func RDMACounter(t testing.TB, device, name string) uint64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/sys/class/infiniband", device, "ports/1/hw_counters", name))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// RDMAObjects counts the objects on each RDMA device by kind (pd, cq, qp, mr and others), as the
// kernel does: the objects of all processes, and its own.
func RDMAObjects() (map[string]map[string]int, error) {
	out, err := exec.Command("rdma", "resource", "show").Output()
	if err != nil {
		return nil, fmt.Errorf("rdma resource show: %w", err)
	}
	devices := make(map[string]map[string]int)
	// A line looks like: 0: snrxe0: pd 1 cq 1 qp 1 cm_id 0 mr 0 ctx 0 srq 0
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kinds := make(map[string]int)
		for i := 2; i+1 < len(f); i += 2 {
			if kinds[f[i]], err = strconv.Atoi(f[i+1]); err != nil {
				return nil, fmt.Errorf("rdma resource show: %q: %w", line, err)
			}
		}
		devices[strings.TrimSuffix(f[1], ":")] = kinds
	}
	return devices, nil
}

// adapterFamily names the family of adapters for the library of ci/softroce/adapter.
const adapterFamily = "SPLITNIC_ADAPTER"

// Adapter returns the variables with which a program sees each Soft-RoCE device as an adapter of
// a family of this file, which is usually internal/adapters/facts.txt.
func Adapter(t testing.TB, family, facts string) []string {
	t.Helper()
	library, err := filepath.Abs("../../build/adapter.so")
	if err == nil {
		facts, err = filepath.Abs(facts)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(library); err != nil {
		Missing(t, "adapter", "%v: `make build/adapter.so` builds it", err)
	}
	return []string{"LD_PRELOAD=" + library, adapterFamily + "=" + family, adapterFamily + "_FACTS=" + facts}
}

// AdapterFamily returns the family that this process sees, empty for none.
func AdapterFamily() string { return os.Getenv(adapterFamily) }
