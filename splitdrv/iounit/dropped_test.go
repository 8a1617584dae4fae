package iounit

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/iounit/guard"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/vnet"
)

// TestRefusals has frames dropped for several reasons, many times. Each reason must be listed once,
// until the policy changes, and name the key of the policy that would allow the frame.
func TestRefusals(t *testing.T) {
	c := newClient(t, policy.Default().For("", ""))
	p := c.s.guard.Ports()[0]
	frames := [][]byte{
		frame(broadcast, machine, 60), frame(broadcast, own, 60, 4095), etherFrame(machine, "88cc 02"), superFrame(60000, 1),
	}
	send := func() {
		for range 3 {
			for _, f := range frames {
				if err := write(p, f); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	want := []string{"`macs`", "802.1Q", "`link-control: yes`", "segments of 1 bytes"}
	same := func() {
		t.Helper()
		if got := c.s.guard.Refusals.List(); !slices.EqualFunc(got, want, strings.Contains) {
			t.Errorf("frames were dropped because %q", got)
		}
	}
	send()
	same()
	if st, d := c.s.statistics(); d != (guard.Dropped{LinkControl: 3, TinySegments: 3}) || st.TxSource != 3 ||
		st.TxVLAN != 3 || st.TxDropped != 0 {
		t.Errorf("%+v, %+v", st, d)
	}
	// The counters for the host have fewer reasons.
	if st := c.s.reported(); st != (protocol.Statistics{TxSource: 3, TxVLAN: 3, TxDropped: 6}) {
		t.Errorf("the host is told %+v", st)
	}
	h := *policy.Default().For("", "")
	h.SingleTag, h.LinkControl = true, true
	h.IPs = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}
	if err := c.s.govern(&h, protocol.ModeImm); err != nil {
		t.Fatal(err)
	}
	if got := c.s.guard.Refusals.List(); len(got) != 0 {
		t.Errorf("under another policy frames were dropped because %q", got)
	}
	frames = [][]byte{etherFrame(machine, "8100 0005 8100 0006 0800"), etherFrame(machine, "88cc 02")}
	want = []string{"`nested-tags: yes`", "`ips`"}
	send()
	same()
	if st := c.s.reported(); st != (protocol.Statistics{TxSource: 6, TxVLAN: 6, TxDropped: 6}) {
		t.Errorf("the host is told %+v", st)
	}
	tagged := *policy.Default().For("", "")
	tagged.TaggedOnly = true
	if err := c.s.govern(&tagged, protocol.ModeImm); err != nil {
		t.Fatal(err)
	}
	frames, want = [][]byte{etherFrame(machine, "0800")}, []string{"`untagged: yes`"}
	send()
	same()
}

// TestDropsAreShown checks that a capture has each dropped frame once, with the reason, even if it
// was tried again after a frame before it had to wait.
func TestDropsAreShown(t *testing.T) {
	c := newClient(t, policy.Default().For("", ""))
	shown, err := c.unit.Captures().Start(capture.Config{Paths: "host alpha dropped"})
	if err != nil {
		t.Fatal(err)
	}
	p, good := c.s.guard.Ports()[0], frame(broadcast, own, 60)
	ops := []vnet.WriteOp{{Head: good}, {Head: good}, {Head: frame(broadcast, machine, 60)}}
	c.port.queue.Room = 1
	if n := p.WriteFrames(ops); n != 1 {
		t.Fatalf("%d frames are done with, where one has room", n)
	}
	c.port.queue.Room = 0
	if n := p.WriteFrames(ops[1:]); n != 2 {
		t.Fatalf("%d frames of 2 are done with", n)
	}
	shown.End()
	var file bytes.Buffer
	if err := shown.Copy(t.Context(), &file, "", ""); err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(&file, pcapgo.NgReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for {
		_, _, opts, err := r.ReadPacketDataWithOptions()
		if err != nil {
			break
		}
		got = append(got, opts.Comments...)
	}
	if len(got) != 1 || !strings.Contains(got[0], "`macs`") {
		t.Errorf("shown with %q", got)
	}
}

// TestOversizeOfAll checks that frames of all queues are counted, by the card's MTU at that time.
func TestOversizeOfAll(t *testing.T) {
	c := newClient(t, hostWith("all"))
	c.port.queues = 2
	s := newServices(c.s.host, &c.unit.common, c.port, own, 1500, 1500)
	s.conn = c.s.conn
	want := uint64(0)
	for _, step := range []struct {
		card  int
		bytes int
		count uint64 // for each queue
	}{{1500, 1522, 1}, {1504, 1522, 0}, {1504, 1523, 1}, {1400, 1419, 1}} {
		s.follow(step.card)
		for _, p := range s.guard.Ports() {
			if err := write(p, frame(broadcast, own, step.bytes, 5, 6)); err != nil {
				t.Fatal(err)
			}
			want += step.count
		}
		if got := s.guard.Oversize(); got != want {
			t.Errorf("%d bytes with a card MTU of %d: %d are counted, want %d", step.bytes, step.card, got, want)
		}
	}
}
