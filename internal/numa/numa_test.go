package numa

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOfDevice(t *testing.T) {
	for text, want := range map[string]int{"0\n": 0, "3\n": 3, "-1\n": None, "": None, "one\n": None} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "device", "numa_node"), text)
		if n := OfDevice(dir); n != want {
			t.Errorf("%q: node %d, not %d", text, n, want)
		}
	}
	if n := OfDevice(t.TempDir()); n != None {
		t.Errorf("a device without a node: %d", n)
	}
}

func TestPrefer(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 8*unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	if err := Prefer(mem, None); err != nil {
		t.Error(err)
	}
	node := testenv.LastNode(t)
	if err := Prefer(mem, node); err != nil {
		t.Fatal(err)
	}
	clear(mem)
	testenv.OnNode(t, mem, node)
	for _, absent := range []int{node + 1, 64, 1000, 5000} {
		if err := Prefer(mem, absent); !errors.Is(err, unix.EINVAL) {
			t.Errorf("node %d, which is not: %v", absent, err)
		}
	}
}
