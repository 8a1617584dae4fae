package verbs

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
)

// LibraryVersion returns the version of the libibverbs that the process has loaded, from the name of
// its file: libibverbs.so.1.14.50.0 is of rdma-core 50. It is empty if the process has none.
func LibraryVersion() string {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 {
			continue
		}
		if v, ok := strings.CutPrefix(filepath.Base(fields[5]), "libibverbs.so."); ok {
			return v
		}
	}
	return ""
}
