package mirror

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/tap"
)

// TestFilterFits has more addresses than fit into a request, and expects all multicast or
// promiscuous mode instead.
func TestFilterFits(t *testing.T) {
	addrs := func(first byte, n int) (list []net.HardwareAddr) {
		for i := range n {
			list = append(list, net.HardwareAddr{first, 0, 0x5e, 0, byte(i >> 8), byte(i)})
		}
		return list
	}
	const most = protocol.MaxFilterAddresses
	for _, c := range []struct {
		unicast, multicast int
		want               string
	}{
		{1, most - 1, fmt.Sprintf("%d groups, 1 more addresses", most-1)},
		{1, most, "0 groups, 1 more addresses, all multicast"},
		{most + 1, 1, "0 groups, all multicast, promiscuous"},
		{most, 0, fmt.Sprintf("0 groups, %d more addresses", most)},
	} {
		m := New(Config{}, &tap.State{}, nil)
		f := m.wantFilter(&tap.State{Unicast: addrs(2, c.unicast), Multicast: addrs(1, c.multicast)})
		if got := describe(f); got != c.want {
			t.Errorf("%d and %d: %q, want %q", c.unicast, c.multicast, got, c.want)
		}
	}
}

// unicast sets the further addresses of the netdevice: those from first to last.
func unicast(first, last int) event {
	return set(func(s *tap.State) {
		s.Unicast = nil
		for i := first; i <= last; i++ {
			m := childMAC(i)
			s.Unicast = append(s.Unicast, m[:])
		}
	})
}

func childMAC(i int) protocol.MAC { return protocol.MAC{2, 4, 0, 0, byte(i >> 8), byte(i)} }

// granted answers a request for a filter with the addresses from first to last, and gives a reason if
// others were requested.
func granted(first, last int, reason string) event {
	return func(n *netdevice) string {
		f := n.asked.filter
		f.Unicast = nil
		for i := first; i <= last; i++ {
			f.Unicast = append(f.Unicast, childMAC(i))
		}
		data := protocol.AppendReceiveFilter(nil, f)
		if n.asked.Partly(data) != (reason != "") {
			return "Partly is wrong"
		}
		n.asked.Refusal = reason
		return n.do(n.Reply(n.asked, protocol.CfgOK, data, &n.state, time.Time{}))
	}
}

// TestFurtherAddresses has the I/O unit grant some of the further addresses. The others are reported
// once, each alone, and what was granted stays.
func TestFurtherAddresses(t *testing.T) {
	macsKey := "the I/O unit: denied; `macs` in its policy says what this host may have"
	promiscKey := "the I/O unit: denied; `promiscuous` in its policy says what this host may have"
	lacks := func(addrs, reason string) string {
		return fmt.Sprintf("rejected unicast addresses %s (%s)", addrs, reason)
	}
	asks := func(n int) step { return step{next, fmt.Sprintf("ask receive filter 0 groups, %d more addresses", n)} }
	for name, steps := range map[string][]step{
		"in part": {
			{unicast(1, 3), ""}, asks(3), {granted(1, 2, "too many"), lacks("[02:04:00:00:00:03]", "the I/O unit: too many")},
			{next, ""}, {askAgain, "true true"}, asks(3), {granted(1, 2, "too many"), ""}, {next, ""},
			{unicast(1, 4), ""}, asks(4), {granted(1, 2, "too many"), lacks("[02:04:00:00:00:04]", "the I/O unit: too many")},
			{unicast(2, 4), ""}, asks(3), {granted(2, 3, "too many"), ""}, {next, ""},
			{unicast(2, 3), ""}, asks(2), {granted(2, 3, ""), ""}, {next, ""}, {askAgain, "false false"},
			{unicast(2, 9), ""}, asks(8), {granted(2, 3, "too many"),
				lacks("[02:04:00:00:00:04 02:04:00:00:00:05 02:04:00:00:00:06] and 3 more", "the I/O unit: too many")},
		},
		"by an I/O unit that refuses a list as a whole": {
			{unicast(1, 2), ""}, asks(2), {ok, ""},
			{unicast(1, 4), ""}, asks(4), {denied, lacks("[02:04:00:00:00:03 02:04:00:00:00:04]", macsKey)}, {next, ""},
			{unicast(1, 5), ""}, asks(3), {denied, lacks("[02:04:00:00:00:05]", macsKey)}, {next, ""},
		},
		"and those that it had": {
			{unicast(1, 2), ""}, asks(2), {ok, ""}, {unicast(1, 1), ""}, asks(1),
			{denied, lacks("[02:04:00:00:00:01]", macsKey)}, {next, "ask receive filter 0 groups"}, {ok, ""}, {next, ""},
		},
		"more than a message holds": {
			{unicast(0, protocol.MaxFilterAddresses+1), ""},
			{next, "ask receive filter 0 groups, all multicast, promiscuous"},
			{denied, "rejected promiscuous mode on (" + promiscKey + ")"},
			{next, fmt.Sprintf("ask receive filter 0 groups, %d more addresses, all multicast", protocol.MaxFilterAddresses)},
			{granted(0, 255, "too many"), lacks("[02:04:00:00:01:00 02:04:00:00:01:01 02:04:00:00:01:02] and 420 more",
				"the I/O unit: too many")},
			{next, ""},
		},
		"a notice before the answer": {
			{unicast(1, 1), ""}, asks(1), {askAgain, "false false"}, {denied, lacks("[02:04:00:00:00:01]", macsKey)},
			asks(1), {denied, ""}, {next, ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := &netdevice{state: tap.State{MAC: net.HardwareAddr(ownMAC[:]), MTU: 1500}}
			n.Mirror = New(Config{MaxMTU: 9000}, &n.state, nil)
			for i, s := range slices.Concat(session(1500), steps) {
				if got := s.event(n); got != s.want {
					t.Fatalf("step %d: %q, want %q", i-len(session(1500)), got, s.want)
				}
			}
		})
	}
}
