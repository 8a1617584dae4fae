package limit

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
)

func tcp(addr string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr)) }

func TestNetworks(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.7:1":             "[192.0.0.0/16 192.0.2.0/24 192.0.2.7/32]",
		"[::ffff:192.0.2.7]:1":    "[192.0.0.0/16 192.0.2.0/24 192.0.2.7/32]",
		"[2001:db8:1:2345:3::]:1": "[2001:db8:1::/48 2001:db8:1:2300::/56 2001:db8:1:2345::/64]",
		"[fe80::7%eth0]:1":        "[fe80::/10 fe80::/64 fe80::7/128]",
	} {
		if got := fmt.Sprint(NetworksOf(tcp(addr))); got != want {
			t.Errorf("%v is from %v, want %v", addr, got, want)
		}
	}
	if got := NetworksOf(&net.UnixAddr{}); got != (Networks{}) || got.Valid() {
		t.Errorf("a unix socket is from %v", got)
	}
}

// TestKey expects one key for all addresses that a machine can choose, and one for each public
// key.
func TestKey(t *testing.T) {
	a, b := Machine(tcp("[2001:db8::1]:1")), Machine(tcp("[2001:db8::2:3]:2"))
	if a != b || !a.IsMachine() || a == Machine(tcp("[2001:db8:0:1::1]:1")) {
		t.Errorf("%v, %v", a, b)
	}
	if k := PublicKey([32]byte{1}); k.IsMachine() || k == PublicKey([32]byte{2}) || k != PublicKey([32]byte{1}) {
		t.Error(k)
	}
	if k := Machine(&net.UnixAddr{}); !k.IsMachine() {
		t.Error(k)
	}
}
