package lan

import (
	"net"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
)

// run reports whether program accepts frame.
func run(t *testing.T, program []bpf.Instruction, frame []byte) bool {
	t.Helper()
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	n, err := vm.Run(frame)
	if err != nil {
		t.Fatal(err)
	}
	return n > 0
}

func TestFilter(t *testing.T) {
	own := net.HardwareAddr{2, 3, 4, 5, 6, 7}
	near := net.HardwareAddr{2, 3, 4, 5, 6, 8} // differs from own in the last bytes
	far := net.HardwareAddr{2, 3, 9, 5, 6, 7}  // differs from own in the first bytes
	group := net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
	broad := broadcast
	listed := net.HardwareAddr{0x33, 0x33, 0, 0, 0, 2}
	second := net.HardwareAddr{2, 3, 4, 5, 6, 9}
	nearBroad := net.HardwareAddr{255, 255, 255, 255, 255, 251}
	for _, tc := range []struct {
		name                       string
		dst, src                   net.HardwareAddr
		normal, broadcast, promisc bool // wanted with all multicast, without all multicast, and promiscuous
		beside                     bool // wanted beside a macvtap, promiscuous
		lists, besideLists         bool // wanted with lists of addresses, and beside a macvtap
	}{
		{"to us", own, far, true, true, true, false, true, false},
		{"to us from near", own, near, true, true, true, false, true, false},
		{"to near", near, far, false, false, true, true, false, false},
		{"to far", far, near, false, false, true, true, false, false},
		{"to a group", group, far, true, false, true, false, false, false},
		{"to all", broad, far, true, true, true, false, true, false},
		{"to almost all", nearBroad, far, true, false, true, false, false, false},
		{"to a listed group", listed, far, true, false, true, false, true, false},
		{"to our second address", second, far, false, false, true, true, true, true},
		{"from us to far", far, own, false, false, false, false, false, false},
		{"from us to all", broad, own, false, false, false, false, false, false},
		{"from us to us", own, own, false, false, false, false, false, false},
	} {
		frame := append(append([]byte{}, tc.dst...), tc.src...)
		for _, f := range []struct {
			receiveFilter
			want bool
		}{
			{receiveFilter{mac: own, allMulti: true}, tc.normal},
			{receiveFilter{mac: own}, tc.broadcast},
			{receiveFilter{mac: own, promisc: true}, tc.promisc},
			{receiveFilter{mac: own, promisc: true, beside: true}, tc.beside},
			{receiveFilter{mac: own, groups: []net.HardwareAddr{listed}, unicast: []net.HardwareAddr{second}}, tc.lists},
			{receiveFilter{mac: own, unicast: []net.HardwareAddr{second}, beside: true}, tc.besideLists},
			{receiveFilter{mac: own, promisc: true, down: true}, false},
		} {
			if got := run(t, f.program(), frame); got != f.want {
				t.Errorf("%s: %t with %+v", tc.name, got, f.receiveFilter)
			}
		}
		if run(t, rejectAll, frame) {
			t.Errorf("%s passes the filter that rejects all", tc.name)
		}
	}
}

// TestFilterManyGroups gives the filter more groups than fit into a program. Frames to these groups
// have to pass, except beside a macvtap, and frames to other groups may pass.
func TestFilterManyGroups(t *testing.T) {
	own, far := net.HardwareAddr{2, 3, 4, 5, 6, 7}, net.HardwareAddr{2, 3, 9, 5, 6, 7}
	for _, n := range []int{maxListed, maxListed + 1, 600} {
		f := receiveFilter{mac: own}
		for i := range n {
			f.groups = append(f.groups, net.HardwareAddr{1, 0, 0, 0, byte(i >> 8), byte(i)})
		}
		for i := range MaxUnicast { // some differ in the first bytes only
			f.unicast = append(f.unicast, net.HardwareAddr{2, byte(i & 1), 0, 0, byte(i >> 9), byte(i >> 1)})
		}
		for i := range 6 {
			f.unicast[i] = net.HardwareAddr{2, byte(i), 9, 9, 9, 9}
		}
		for _, beside := range []bool{false, true} {
			f.beside = beside
			p := f.program()
			if len(p) > 7*MaxUnicast+200 {
				t.Errorf("%d groups make %d instructions", n, len(p))
			}
			for _, a := range f.unicast {
				if !run(t, p, append(append([]byte{}, a...), far...)) {
					t.Errorf("frame to %v does not pass", a)
				}
			}
			for _, g := range f.groups {
				if run(t, p, append(append([]byte{}, g...), far...)) == beside {
					t.Errorf("frame to %v: beside a macvtap: %t", g, beside)
				}
			}
			for _, a := range append([]net.HardwareAddr{far}, near(f.unicast[:16], f.unicast)...) {
				if run(t, p, append(append([]byte{}, a...), far...)) {
					t.Errorf("frame to %v, somebody else's address, passes", a)
				}
			}
		}
	}
}

// near returns addresses that differ from some in one bit, and are not among all.
func near(some, all []net.HardwareAddr) (out []net.HardwareAddr) {
	for _, a := range some {
		for bit := 1; bit < 48; bit++ { // bit 0 of the first byte would make it a group
			b := slices.Clone(a)
			b[bit/8] ^= 0x80 >> (bit % 8)
			if b[0]&1 == 0 && !listed(all, b) {
				out = append(out, b)
			}
		}
	}
	return out
}

// TestFilterSearch gives the filter lists of all short lengths, with and without addresses whose last
// bytes are equal.
func TestFilterSearch(t *testing.T) {
	for n := range 24 {
		for _, alike := range []int{1, 3, 24} {
			f := receiveFilter{mac: net.HardwareAddr{2, 3, 4, 5, 6, 7}, beside: true}
			for i := range n {
				f.unicast = append(f.unicast, net.HardwareAddr{byte(2 * i), byte(i), 0x80, 0, 0, byte(i / alike * 11)})
			}
			p := f.program()
			for _, a := range f.unicast {
				if !run(t, p, append(append([]byte{}, a...), 2, 0, 0, 0, 0, 9)) {
					t.Errorf("%d addresses, %d alike: frame to %v does not pass", n, alike, a)
				}
			}
			for _, a := range near(f.unicast, f.unicast) {
				if run(t, p, append(append([]byte{}, a...), 2, 0, 0, 0, 0, 9)) {
					t.Errorf("%d addresses, %d alike: frame to %v passes", n, alike, a)
				}
			}
		}
	}
}
