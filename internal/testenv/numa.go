package testenv

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/splitnic/splitnic/internal/cpus"
)

// LastNode returns the last of this machine's NUMA nodes that have memory.
func LastNode(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/sys/devices/system/node/has_memory")
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := cpus.Parse(strings.TrimSpace(string(b)))
	if err != nil || len(nodes) == 0 {
		t.Fatalf("NUMA nodes %q: %v", b, err)
	}
	return nodes[len(nodes)-1]
}

// OnNode fails the test unless the policy of the memory prefers a NUMA node, and all pages of its
// mapping are on this node (numa_maps of proc(5)). The memory must have been touched.
func OnNode(t *testing.T, mem []byte, node int) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/numa_maps")
	if err != nil {
		t.Fatal(err)
	}
	var fields []string // of the last mapping that begins no later
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		start, err := strconv.ParseUint(f[0], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		if start <= uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) {
			fields = f
		}
	}
	other := slices.ContainsFunc(fields, func(f string) bool {
		return f[0] == 'N' && !strings.HasPrefix(f, fmt.Sprintf("N%d=", node))
	})
	if !slices.Contains(fields, fmt.Sprintf("prefer:%d", node)) || other {
		t.Errorf("memory of NUMA node %d: %v", node, fields)
	}
}
