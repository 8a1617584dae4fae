package iounit

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/vnet"
)

// TestRefusals has frames dropped for several reasons, many times. Each reason must be listed once,
// until the policy changes, and name the key of the policy that would allow the frame.
func TestRefusals(t *testing.T) {
	c := newClient(t, policy.Default().For("", ""))
	p := c.s.guard.queues[0]
	frames := [][]byte{
		frame(broadcast, machine, 60), frame(broadcast, own, 60, 4095), etherFrame(machine, "88cc 02"), superFrame(60000, 1),
	}
	send := func() {
		for range 3 {
			for _, f := range frames {
				if err := p.WriteFrame(f); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	want := []string{"`macs`", "802.1Q", "`link-control: yes`", "segments of 1 bytes"}
	same := func() {
		t.Helper()
		if got := c.s.guard.refusals.list(); !slices.EqualFunc(got, want, strings.Contains) {
			t.Errorf("frames were dropped because %q", got)
		}
	}
	send()
	same()
	if st, d := c.s.statistics(); d != (Dropped{LinkControl: 3, TinySegments: 3}) || st.TxSource != 3 || st.TxVLAN != 3 ||
		st.TxDropped != 0 {
		t.Errorf("%+v, %+v", st, d)
	}
	// The counters for the host have fewer reasons.
	if st := c.s.reported(); st != (protocol.Statistics{TxSource: 3, TxVLAN: 3, TxDropped: 6}) {
		t.Errorf("the host is told %+v", st)
	}
	h := *policy.Default().For("", "")
	h.SingleTag, h.LinkControl = true, true
	h.IPs = hostIPs(t, "192.0.2.1")
	if err := c.s.govern(&h, protocol.ModeImm); err != nil {
		t.Fatal(err)
	}
	if got := c.s.guard.refusals.list(); len(got) != 0 {
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
	p, good := c.s.guard.queues[0], frame(broadcast, own, 60)
	ops := []vnet.WriteOp{{Head: good}, {Head: good}, {Head: frame(broadcast, machine, 60)}}
	c.port.queue.room = 1
	if n := p.WriteFrames(ops); n != 1 {
		t.Fatalf("%d frames are done with, where one has room", n)
	}
	c.port.queue.room = 0
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

// TestRefusalsAreTold checks that each reason is passed on once.
func TestRefusalsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, done := newRefusals(), make(chan struct{})
		var told []string
		go r.run(done, func(text string) { told = append(told, text) })
		for _, n := range []int{1, 1, 2} {
			for v := range verdict(n) {
				r.note(source+v, frame(broadcast, machine, 60, 5))
			}
			synctest.Wait()
			if len(told) != n {
				t.Fatalf("%q", told)
			}
		}
		r.forget()
		r.note(source, frame(broadcast, machine, 60, 5))
		synctest.Wait()
		if len(told) != 3 || told[2] != told[0] {
			t.Errorf("%q", told)
		}
		close(done)
	})
}
