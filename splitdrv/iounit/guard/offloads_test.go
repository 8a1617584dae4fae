//go:build !race

package guard

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/vnet"
	"github.com/splitnic/splitnic/vnet/frametest"
)

// strictHosts returns hosts for whose frames the rules look at everything, in several ways.
func strictHosts() (all []*policy.Host) {
	for _, of := range []struct {
		vlans          string
		tagged, single bool
		ips            bool
	}{{"none", false, true, true}, {"10", true, false, true}, {"10", true, true, false}, {"all", false, false, true}} {
		h := hostWith(of.vlans, own.String())
		h.TaggedOnly, h.SingleTag = of.tagged, of.single
		if of.ips {
			h.IPs = []netip.Prefix{netip.MustParsePrefix("192.0.2.10/32"), netip.MustParsePrefix("2001:db8::a/128")}
		}
		all = append(all, h)
	}
	return all
}

// judge gives verdicts on frames like a port of a host, and does what a card does for them.
type judge struct {
	t   *testing.T
	p   *policed
	q   *queue
	fin vnet.Finisher
}

func newJudge(t *testing.T, h *policy.Host) *judge {
	p, q := newPoliced(h, func(r *Rules) { r.MTU, r.Card = 1500, 1500 })
	return &judge{t: t, p: p, q: q}
}

// verdict returns the verdict on a frame. A frame that is malformed reaches no card either.
func (j *judge) verdict(f []byte) verdict {
	j.q.Out = j.q.Out[:0]
	if err := j.p.WriteFrame(f); err != nil && j.p.verdicts[0] != malformed {
		j.t.Fatal(err)
	}
	if v := j.p.verdicts[0]; (v == pass) != (len(j.q.Out) == 1) {
		j.t.Fatalf("verdict %d, %d frames written", v, len(j.q.Out))
	}
	return j.p.verdicts[0]
}

// carriedOut returns the frames that a card, or the kernel for it, makes of a frame that passes: it
// carries out what the virtio header says, without looking at anything else.
func (j *judge) carriedOut(f []byte) (all [][]byte) {
	j.t.Helper()
	var h vnet.Header
	h.Decode(f)
	if h.GSOType == vnet.GSONone && h.Flags&vnet.FlagNeedsCsum == 0 {
		return nil
	}
	if h.GSOType == vnet.GSONone {
		done := slices.Clone(f)
		clear(done[:vnet.HdrLen])
		eth := done[vnet.HdrLen:]
		sum := uint64(0)
		for i, b := range eth[h.CsumStart:] {
			sum += uint64(b) << (8 * (1 - i%2))
		}
		for sum>>16 != 0 {
			sum = sum&0xffff + sum>>16
		}
		binary.BigEndian.PutUint16(eth[h.CsumStart+h.CsumOffset:], ^uint16(sum))
		return [][]byte{done}
	}
	n, err := j.fin.Begin(f, nil)
	if err != nil {
		j.t.Fatalf("a frame that passes has no segments: %v, % x", err, f[:min(len(f), 120)])
	}
	for i := range min(n, 3) {
		all = append(all, slices.Clone(j.fin.Segment(i)))
	}
	return append(all, slices.Clone(j.fin.Segment(n-1)))
}

// holds checks that what a card makes of f passes if f does, and reports whether f passes.
func (j *judge) holds(name string, f []byte) bool {
	j.t.Helper()
	if j.verdict(f) != pass {
		return false
	}
	for i, g := range j.carriedOut(f) {
		if v := j.verdict(g); v != pass {
			j.t.Errorf("%s passes with the header % x, and what the card makes of it has verdict %d: frame %d, % x", name,
				f[:vnet.HdrLen], v, i, g[vnet.HdrLen:min(len(g), 120)])
			return true
		}
	}
	return true
}

const (
	ours4 = "c000020a c0000201"
	ours6 = "20010db8 00000000 00000000 0000000a ff020000 00000000 00000000 00000001"
	mine6 = "20010db8 00000000 00000000 0000000a"
)

// ip4 returns an IPv4 packet of the host's; option is "" or eight bytes.
func ip4(proto, fragment, option, rest string) string {
	ihl := "45"
	if option != "" {
		ihl = "47"
	}
	return "0800 " + ihl + "00 0054 0000 " + fragment + " 40" + proto + " 0000 " + ours4 + option + rest
}

func ip6(next, rest string) string { return "86dd 60000000 0040 " + next + " ff " + ours6 + rest }

// place is where a checksum begins, and where it goes from there.
type place struct{ start, offset uint16 }

// offloaded are frames that strictHosts may send, with the places of the checksums that they may
// leave to the card.
var offloaded = []struct {
	name, rest string
	may        []place
}{
	{"ARP", "0806 0001 0800 0604 0001 " + "020000000001 c000020a 000000000000 c0000201", nil},
	{"UDP", ip4("11", "0000", "", "1f90 1f91 0040 0000"), []place{{34, 6}}},
	{"TCP", ip4("06", "4000", "", "1f90 1f91 00000001 00000002 5010 ffff 0000 0000"), []place{{34, 16}}},
	{
		"TCP behind an option", ip4("06", "0000", "94040000 01010101", "1f90 1f91 00000001 00000002 5010 ffff"),
		[]place{{42, 16}},
	},
	{"SCTP", ip4("84", "0000", "", "1f90 1f91 00000001"), []place{{34, 8}}},
	{"GRE", ip4("2f", "0000", "", "8000 0800 0000 0000 4500"), []place{{34, 4}, {62, 16}, {62, 6}}},
	{"IP in IP", ip4("04", "0000", "", "4500 0040 0000 0000 4006 0000 0a000001 0a000002"), []place{{54, 16}, {54, 6}}},
	{"IPv6 in IP", ip4("29", "0000", "", "60000000 0020 06 40"), []place{{74, 16}, {74, 6}}},
	{"VXLAN", ip4("11", "0000", "", "1f90 12b5 0060 0000 08000000 00000100"), []place{{34, 6}, {84, 16}, {84, 6}}},
	{"a first fragment", ip4("11", "2000", "", "1f90 1f91 0040 0000"), nil},
	{"a later fragment", ip4("11", "0005", "", "1f90 1f91 0040 0000"), nil},
	{"another protocol", ip4("59", "0000", "", "0201 0000"), nil},
	{"TCP over IPv6", ip6("06", "1f90 1f91 00000001 00000002 5010 ffff 0000 0000"), []place{{54, 16}}},
	{"UDP behind options", ip6("00", "1100 050200000100 1f90 1f91 0040 0000"), []place{{62, 6}}},
	{"TCP behind options and routing", ip6("00", "2b00 050200000100 0600 000000000000 1f90 1f91 00000001 00000002 5010"), []place{{70, 16}}},
	{"UDP in a fragment", ip6("2c", "1100 0001 00000001 1f90 1f91 0040 0000"), nil},
	{"echo", ip6("3a", "8000 0000 00000000"), []place{{54, 2}}},
	{"advertisement", ip6("3a", "8800 0000 20000000"+mine6), []place{{54, 2}}},
	{"advertisement behind options", ip6("00", "3a00 050200000100 8800 0000 20000000"+mine6), []place{{62, 2}}},
	{"solicitation", ip6("3a", "8700 0000 00000000"+mine6), []place{{54, 2}}},
}

// TestVerdictOutlastsOffloads puts the checksum of frames at all places, also with segmentation, and
// carries out what the virtio header asks for. Whatever passes must pass again then, so that no card
// makes a frame of it that the policy forbids. Checksums at their own places have to pass.
func TestVerdictOutlastsOffloads(t *testing.T) {
	tags := map[string]string{
		"": "", " in a VLAN": "8100 000a ", " behind a priority": "8100 e000 8100 000a ",
		" behind two":    "8100 e000 88a8 e000 8100 000a ",
		" with old tags": "9100 0000 9100 000a ", " in six VLANs": strings.Repeat("8100 000a ", 6),
	}
	for i, h := range strictHosts() {
		j := newJudge(t, h)
		for _, tc := range offloaded {
			for what, tag := range tags {
				f := etherFrame(machine, tag+tc.rest)
				for len(f) < 300 {
					f = append(f, byte(len(f)*7))
				}
				if j.verdict(f) != pass {
					continue
				}
				name := tc.name + what
				shift := uint16(len(strings.ReplaceAll(tag, " ", "")) / 2)
				may := make(map[place]bool)
				for _, p := range tc.may {
					may[place{p.start + shift, p.offset}] = true
				}
				for start := range uint16(140) {
					for offset := range uint16(22) {
						(&vnet.Header{Flags: vnet.FlagNeedsCsum, CsumStart: start, CsumOffset: offset}).Encode(f)
						passes := j.holds(name, f)
						if may[place{start, offset}] && !passes {
							t.Errorf("host %d: %s: a checksum at %d+%d does not pass", i, name, start, offset)
						}
					}
					for _, kind := range []uint8{vnet.GSOTCPv4, vnet.GSOTCPv6, vnet.GSOUDPL4} {
						offset := uint16(16)
						if kind == vnet.GSOUDPL4 {
							offset = 6
						}
						(&vnet.Header{
							Flags: vnet.FlagNeedsCsum, GSOType: kind, GSOSize: 60, CsumStart: start, CsumOffset: offset,
						}).Encode(f)
						j.holds(name, f)
					}
					if t.Failed() {
						return
					}
				}
			}
		}
	}
}

// TestVerdictOutlastsOddOffloads is TestVerdictOutlastsOffloads for odd frames.
func TestVerdictOutlastsOddOffloads(t *testing.T) {
	passed := 0
	for _, h := range append(strictHosts(), hostWith("all")) {
		j := newJudge(t, h)
		for _, f := range frametest.Corpus(machine, own) {
			if len(f.Bytes) <= vnet.MaxFrame && j.holds(f.Name, f.Bytes) {
				passed++
			}
		}
		random := frametest.NewRandom(5, machine, own)
		for range 20_000 {
			if f := random.Next(); j.holds("a random frame", f) {
				passed++
			}
		}
		if t.Failed() {
			return
		}
	}
	if passed == 0 {
		t.Error("no frame passes")
	}
}

// FuzzVerdictOutlastsOffloads looks for a frame that passes, and of which a card makes one that does
// not.
func FuzzVerdictOutlastsOffloads(f *testing.F) {
	for _, tc := range offloaded {
		b := etherFrame(machine, tc.rest)
		for _, p := range append(tc.may, place{14, 14}, place{22, 20}, place{54, 8}) {
			(&vnet.Header{Flags: vnet.FlagNeedsCsum, CsumStart: p.start, CsumOffset: p.offset}).Encode(b)
			f.Add(slices.Clone(b))
		}
	}
	f.Add(superFrame(4000, 1448))
	f.Add(etherFrame(machine, "8100 e000 8100 e000 8100 000a 0800 4500"))
	hosts := append(strictHosts(), hostWith("all"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > vnet.MaxFrame {
			return
		}
		for _, h := range hosts {
			newJudge(t, h).holds("a frame", b)
		}
	})
}
