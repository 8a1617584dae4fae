// Package numa finds the NUMA node of a device, and binds memory to a node (numa(7)).
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

// None means that there is no node, or that it is unknown.
const None = -1

// preferred is MPOL_PREFERRED of set_mempolicy(2): if the node has no free memory, the kernel
// uses another one.
const preferred = 1

// Prefer has the kernel allocate the untouched pages of mem on node, as long as that has free
// memory (mbind(2)). mem must begin at a page. Prefer does nothing if node is None.
func Prefer(mem []byte, node int) error {
	if node < 0 || len(mem) == 0 {
		return nil
	}
	const bits = 64
	mask := make([]uint64, node/bits+1)
	mask[node/bits] = 1 << (node % bits)
	// The kernel reads one bit less of the mask than the argument says.
	_, _, no := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)), preferred,
		uintptr(unsafe.Pointer(unsafe.SliceData(mask))), uintptr(len(mask)*bits+1), 0)
	if no != 0 {
		return fmt.Errorf("memory of NUMA node %d: %w", node, os.NewSyscallError("mbind", no))
	}
	return nil
}

// OfDevice returns the node of the device with the directory dir below /sys, or None.
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
