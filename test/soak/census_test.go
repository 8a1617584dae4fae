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

// census is the resources that the process has at a time.
type census struct {
	exact  map[string]int // goroutines, descriptors, objects of the fabric: as many as before
	memory map[string]int // bytes: within a bound above the number before
}

// growth is how many bytes more memory there may be than at the first census: allocators and the
// kernel keep memory for later. If a cycle leaves a thousandth of a session's memory behind, this
// is exceeded within 100,000 cycles.
var growth = map[string]int{
	"heap in use":   24 << 20,
	"resident set":  96 << 20,
	"address space": 512 << 20,
}

// settle bounds the time until the resources of what has ended are released: the listener's part of
// a connection, a thread's exit, the kernel's clean-up.
const settle = testenv.Patience

// take returns a complete census.
func (g *ground) take() (census, error) {
	c, err := g.count()
	if err != nil {
		return c, err
	}
	return c, c.weigh()
}

// count counts the resources whose number must be exact. It does not run the garbage collector
// before, which would close files that were left open.
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
	// The kernel does not list windows. But each window holds its domain, which the kernel lists.
	c.exact["windows"] = int(g.unit.windows.Load())
	return c, c.rdma()
}

// weigh measures the memory after garbage collection.
func (c *census) weigh() error {
	runtime.GC()
	runtime.GC() // collects what finalizers and clean-ups have released
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

// rdma counts the objects of all RDMA devices that the kernel lists.
func (c *census) rdma() error {
	devices, err := testenv.RDMAObjects()
	for name, kinds := range devices {
		for kind, n := range kinds {
			c.exact[name+": "+kind] = n
		}
	}
	return err
}

// lower lowers the counts of an earlier census to those of now, if these are lower: some goroutines
// and descriptors were about to end at the earlier census.
func (c *census) lower(now *census) {
	for _, name := range []string{"goroutines", "descriptors"} {
		c.exact[name] = min(c.exact[name], now.exact[name])
	}
}

// grown returns an error that lists the exact counts that differ from before, and the memory that
// has grown beyond its bound.
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

// expect takes a census until nothing is left in addition to before, and fails the test with all
// stacks if this takes too long.
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

// stacks returns the stacks of all goroutines.
func stacks() string {
	b := make([]byte, 1<<20)
	return string(b[:runtime.Stack(b, true)])
}
