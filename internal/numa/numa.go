// Package numa tells which NUMA node a device is on, and has memory come from there
// (numa(7)).
package numa

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// None is no node, or one that is not known.
const None = -1

// preferred is MPOL_PREFERRED of set_mempolicy(2): where the node has no memory free
// another one gives it.
const preferred = 1

// Prefer has the pages of mem that have not been touched yet come from node, as long as
// that has any free (mbind(2)). mem begins at a page. With None it does nothing.
func Prefer(mem []byte, node int) error {
	if node < 0 || len(mem) == 0 {
		return nil
	}
	const bits = 64
	mask := make([]uint64, node/bits+1)
	mask[node/bits] = 1 << (node % bits)
	// The kernel takes one bit less than it is told of.
	_, _, no := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)), preferred,
		uintptr(unsafe.Pointer(unsafe.SliceData(mask))), uintptr(len(mask)*bits+1), 0)
	if no != 0 {
		return fmt.Errorf("memory of NUMA node %d: %w", node, os.NewSyscallError("mbind", no))
	}
	return nil
}

// OfDevice is the node of the device whose directory below /sys that is, or None.
func OfDevice(dir string) int {
	b, err := os.ReadFile(filepath.Join(dir, "device", "numa_node"))
	if err != nil {
		return None
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || n < 0 {
		return None
	}
	return n
}
