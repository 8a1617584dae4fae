package guard

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/vnet"
)

// forged returns a frame from the host in which a card that completes the checksum from start on
// writes value to the offset at.
func forged(rest string, start, at int, value uint16) []byte {
	f := etherFrame(Broadcast, rest)
	f = append(f, make([]byte, 100-len(f))...)
	(&vnet.Header{Flags: vnet.FlagNeedsCsum, CsumStart: uint16(start), CsumOffset: uint16(at - start)}).Encode(f)
	eth := f[vnet.HdrLen:]
	sum := uint32(0)
	for i, b := range eth[start:] {
		sum += uint32(b) << (8 * (1 - i%2))
	}
	// A word at the end makes the sum what it has to be.
	end := len(eth) - 2 - (len(eth)-start)%2
	sum = sum&0xffff + sum>>16
	sum = sum&0xffff + sum>>16
	rest16 := uint32(^value) + 0xffff - sum
	binary.BigEndian.PutUint16(eth[end:], uint16(rest16&0xffff+rest16>>16))
	return f
}

// TestNetnsPolicyOffloads writes frames whose checksum the kernel would complete in the addresses,
// or in a VLAN tag, because the card computes no checksums. None of them may reach the LAN, and a
// checksum at its own place has to be completed.
func TestNetnsPolicyOffloads(t *testing.T) {
	for _, kind := range []string{"macvtap", "packet", "tap"} {
		t.Run(kind, func(t *testing.T) {
			testenv.NeedRoot(t)
			testenv.NeedTUN(t)
			testenv.NeedTools(t, "ethtool")
			unitNS, lanNS, nic := testenv.NetNS(t), testenv.NetNS(t), "eth1"
			testenv.DisableIPv6(t, unitNS)
			testenv.DisableIPv6(t, lanNS)
			testenv.Veth(t, unitNS, "eth1", lanNS, "lan0")
			testenv.Run(t, unitNS, "ethtool", "-K", "eth1", "tx", "off")
			if kind == "tap" {
				nic = "br0"
				testenv.Bridge(t, unitNS, nic, "eth1")
			}
			port, err := lan.Open(kind+":"+nic, lan.Config{
				NetNS: unitNS, MAC: net.HardwareAddr(own[:]), Offloads: vnet.AllOffloads,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := port.Close(); err != nil {
					t.Error(err)
				}
			})
			send := func(h *policy.Host, f []byte) {
				t.Helper()
				p, _ := newPoliced(h, func(r *Rules) { r.MTU, r.Card = 1500, 1500 })
				p.queue = port.Queues()[0]
				_ = p.WriteFrame(f)
			}
			inIP := hostWith("none", own.String())
			inIP.IPs = []netip.Prefix{netip.MustParsePrefix("10.78.0.10/32"), netip.MustParsePrefix("2001:db8::a/128")}
			inVLAN := hostWith("10", own.String())
			inVLAN.TaggedOnly = true
			l := testenv.ListenRaw(t, lanNS, "lan0")
			const na = "20010db8 00000000 00000000 0000000a ff020000 00000000 00000000 00000001 8800 0000 20000000 20010db8 00000000 00000000 0000000a"
			// The headers of IPv4 have the checksum that is right for the other address.
			for _, f := range []struct {
				host     *policy.Host
				rest     string
				from, at int
				writes   uint16
			}{
				{inIP, "0806 0001 0800 0604 0002 020000000001 0a4e000a ffffffffffff 0a4e0001", 14, 30, 0x004d},
				{inIP, "0800 4500 004c 0000 0000 4011 65b8 0a4e000a 0a4e0001 1f90 1f91 0028 0000", 14, 28, 0x004d},
				{inIP, "86dd 60000000 0024 3a ff " + na, 14, 36, 0x004d},
				{inIP, "86dd 60000000 0024 3a ff " + na, 38, 76, 0x004d},
				{inVLAN, "8100 e000 8100 e000 8100 000a 88b5", 22, 22, 20},
				{inVLAN, "9100 0000 9100 000a 88b5", 14, 18, 20},
			} {
				for start := f.from; start <= f.at; start += 2 { // the kernel refuses some
					send(f.host, forged(f.rest, start, f.at, f.writes))
				}
			}
			good := forged("0800 4500 004c 0000 0000 4011 65fb 0a4e000a 0a4e0001 1f90 1f91 0028 1234", 34, 40, 0xbeef)
			send(inIP, good)
			l.Next(func(got []byte) bool {
				eth := got[vnet.HdrLen:]
				switch vlan, _ := vnet.VLAN(got); {
				case len(eth) < 60 || !bytes.Equal(eth[6:12], own[:]):
				case bytes.Equal(eth[34:40], good[vnet.HdrLen+34:][:6]) &&
					bytes.Equal(eth[:28], good[vnet.HdrLen:][:28]) && eth[29] == 0x0a:
					// A packet socket on a veth pair shows what the card has sent.
					if !bytes.Equal(eth[40:42], []byte{0xbe, 0xef}) {
						t.Errorf("the checksum is % x", eth[40:42])
					}
					return true
				default:
					for _, f := range []string{"0a4e004d", "0000004d"} {
						if strings.Contains(hex.EncodeToString(eth[:78]), f) {
							t.Errorf("the LAN received an address of somebody else: % x", eth)
						}
					}
					if vlan != 0 {
						t.Errorf("the LAN received a frame of VLAN %d: % x", vlan, eth)
					}
				}
				return false
			})
		})
	}
}
