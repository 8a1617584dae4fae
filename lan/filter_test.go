package lan

import (
	"encoding/binary"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// run interprets the few instructions that programs here have.
func run(t *testing.T, program []unix.SockFilter, frame []byte) bool {
	t.Helper()
	var a uint32
	for pc := 0; pc < len(program); pc++ {
		in := program[pc]
		switch in.Code {
		case ldb:
			a = uint32(frame[in.K])
		case ldh:
			a = uint32(binary.BigEndian.Uint16(frame[in.K:]))
		case ldw:
			a = binary.BigEndian.Uint32(frame[in.K:])
		case jeq, jset:
			hold := a == in.K
			if in.Code == jset {
				hold = a&in.K != 0
			}
			if hold {
				pc += int(in.Jt)
			} else {
				pc += int(in.Jf)
			}
		case ret:
			return in.K != 0
		default:
			t.Fatalf("instruction %d: unknown code %#x", pc, in.Code)
		}
	}
	t.Fatal("the program has no end")
	return false
}

func TestFilter(t *testing.T) {
	own := net.HardwareAddr{2, 3, 4, 5, 6, 7}
	near := net.HardwareAddr{2, 3, 4, 5, 6, 8} // differs in the last bytes
	far := net.HardwareAddr{2, 3, 9, 5, 6, 7}  // differs in the first ones
	group := net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
	broad := net.HardwareAddr{255, 255, 255, 255, 255, 255}
	nearBroad := net.HardwareAddr{255, 255, 255, 255, 255, 251}
	for _, tc := range []struct {
		name                       string
		dst, src                   net.HardwareAddr
		normal, broadcast, promisc bool // wanted with all multicast, without, and promiscuous
	}{
		{"to us", own, far, true, true, true},
		{"to us from near", own, near, true, true, true},
		{"to near", near, far, false, false, true},
		{"to far", far, near, false, false, true},
		{"to a group", group, far, true, false, true},
		{"to all", broad, far, true, true, true},
		{"to almost all", nearBroad, far, true, false, true},
		{"from us to far", far, own, false, false, false},
		{"from us to all", broad, own, false, false, false},
		{"from us to us", own, own, false, false, false},
	} {
		frame := append(append([]byte{}, tc.dst...), tc.src...)
		for _, f := range []struct {
			receiveFilter
			want bool
		}{
			{receiveFilter{mac: own, allMulti: true}, tc.normal},
			{receiveFilter{mac: own}, tc.broadcast},
			{receiveFilter{mac: own, promisc: true}, tc.promisc},
		} {
			if got := run(t, f.program(), frame); got != f.want {
				t.Errorf("%s: %t with promisc %t, allmulti %t", tc.name, got, f.promisc, f.allMulti)
			}
		}
		if run(t, rejectAll, frame) {
			t.Errorf("%s passes the filter that rejects all", tc.name)
		}
	}
}
