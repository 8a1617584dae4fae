package conform

import "golang.org/x/sys/unix"

// Alloc returns size bytes of zeroed memory outside the Go heap, which can be registered. At
// the end of the test the memory is returned to the system, but its addresses stay reserved,
// so that a late delivery does no harm. The memory of a Pair that owns it stays.
func Alloc(t T, size int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatalf("mapping %d bytes: %v", size, err)
	}
	if o, ok := t.(interface{ own(mem []byte) bool }); ok && o.own(mem) {
		return mem
	}
	t.Cleanup(func() {
		if err := unix.Madvise(mem, unix.MADV_DONTNEED); err != nil {
			t.Errorf("giving back %d bytes: %v", size, err)
		}
	})
	return mem
}

// ramp has multiples of 7.
var ramp = func() (r [512]byte) {
	for i := range r {
		r[i] = byte(i * 7)
	}
	return r
}()

// fill writes a pattern that depends on seed: byte i is i*7 + i>>8*13 + seed*31 + 1. It copies 256
// bytes at a time, because the race detector notes each write.
func fill(p []byte, seed int) {
	for block := 0; len(p) > 0; block++ {
		first := block*13 + seed*31 + 1
		p = p[copy(p, ramp[byte(first*183):][:256]):] // 183*7 is 1 modulo 256
	}
}
