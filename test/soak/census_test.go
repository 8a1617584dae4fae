package soak

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
)

// census is what there is at a time.
type census struct {
	exact  map[string]int // goroutines, descriptors, objects of the fabric: as many as before
	memory map[string]int // bytes: within a bound of what there were before
}

// growth is how much more memory, in bytes, there may be than at the first
// census: what allocators and the kernel keep for later. A cycle that leaves a
// thousandth of a session's memory behind exceeds it within 100,000.
var growth = map[string]int{
	"heap in use":   24 << 20,
	"resident set":  96 << 20,
	"address space": 512 << 20,
}

// settle is how long what has ended may take to be gone: the listener's part of
// a connection, a thread's exit, the kernel's own clean-up.
const settle = 20 * time.Second

// take counts everything.
func (g *ground) take() (census, error) {
	c, err := g.count()
	if err != nil {
		return c, err
	}
	return c, c.weigh()
}

// count counts what there must be exactly as many of. The garbage collector,
// which closes files that nobody has closed, has not been asked to run before.
func (g *ground) count() (census, error) {
	c := census{exact: map[string]int{"goroutines": runtime.NumGoroutine()}, memory: map[string]int{}}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return c, err
	}
	c.exact["descriptors"] = len(fds)
	if g.net != nil {
		l := g.net.Live()
		for name, n := range map[string]int{
			"devices": l.Devices, "domains": l.Domains, "regions": l.Regions, "windows": l.Windows, "completion queues": l.CQs,
			"queue pairs": l.QPs,
		} {
			c.exact[name] = n
		}
		return c, nil
	}
	// The kernel lists no windows. But each holds its domain, which it lists.
	c.exact["windows"] = int(g.unit.windows.Load())
	return c, c.rdma()
}

// weigh measures the memory that is left without the garbage.
func (c *census) weigh() error {
	runtime.GC()
	runtime.GC() // for what finalizers and clean-ups have released
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c.memory["heap in use"] = int(m.HeapInuse)
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	for i, name := range []string{"address space", "resident set"} {
		pages, err := strconv.Atoi(strings.Fields(string(statm))[i])
		if err != nil {
			return fmt.Errorf("/proc/self/statm: %w", err)
		}
		c.memory[name] = pages * os.Getpagesize()
	}
	return nil
}

// rdma counts the objects of all RDMA devices, as the kernel does.
func (c *census) rdma() error {
	devices, err := testenv.RDMAObjects()
	for name, kinds := range devices {
		for kind, n := range kinds {
			c.exact[name+": "+kind] = n
		}
	}
	return err
}

// lower takes from the census before what was on its way out then, so that
// there is less of it now.
func (c *census) lower(now *census) {
	for _, name := range []string{"goroutines", "descriptors"} {
		c.exact[name] = min(c.exact[name], now.exact[name])
	}
}

// grown says what there is more of, or less of, than before.
func (c *census) grown(before *census) error {
	var errs []error
	for _, name := range sorted(c.exact) {
		if n, was := c.exact[name], before.exact[name]; n != was {
			errs = append(errs, fmt.Errorf("%s: %d, %d before", name, n, was))
		}
	}
	for _, name := range sorted(c.memory) {
		if n, was := c.memory[name], before.memory[name]; n > was+growth[name] {
			errs = append(errs, fmt.Errorf("%s: %d KiB, %d KiB before and %d KiB more are allowed", name, n>>10, was>>10,
				growth[name]>>10))
		}
	}
	return errors.Join(errs...)
}

func sorted(m map[string]int) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// String lists the census.
func (c census) String() string {
	var parts []string
	for _, name := range sorted(c.exact) {
		parts = append(parts, fmt.Sprintf("%d %s", c.exact[name], name))
	}
	for _, name := range sorted(c.memory) {
		parts = append(parts, fmt.Sprintf("%.1f MiB %s", float64(c.memory[name])/(1<<20), name))
	}
	return strings.Join(parts, ", ")
}

// expect takes a census until there is no more than before, and fails the test
// with all stacks if that takes too long.
func (g *ground) expect(t *testing.T, before *census) census {
	t.Helper()
	end := time.Now().Add(settle)
	for {
		c, err := g.count()
		if err != nil {
			t.Fatal(err)
		}
		before.lower(&c)
		grown := c.grown(before)
		if grown == nil {
			if err := c.weigh(); err != nil {
				t.Fatal(err)
			}
			grown = c.grown(before)
		}
		if grown == nil {
			return c
		}
		if time.Now().After(end) {
			t.Fatalf("left behind:\n%v\n%s", grown, stacks())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// stacks are those of all goroutines.
func stacks() string {
	b := make([]byte, 1<<20)
	return string(b[:runtime.Stack(b, true)])
}
