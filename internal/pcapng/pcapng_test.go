package pcapng_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/splitnic/splitnic/internal/pcapng"
	"github.com/splitnic/splitnic/internal/testenv"
)

// begun is the time of the first packet, which needs more than 32 bits in nanoseconds.
var begun = time.Unix(1_790_000_000, 123_456_789)

// udp is a frame with a UDP datagram from 192.0.2.1 to 192.0.2.2.
var udp = append([]byte{
	2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0,
	0x45, 0, 0, 33, 0, 0, 0, 0, 64, 17, 0xf6, 0xc5, 192, 0, 2, 1, 192, 0, 2, 2,
	3, 0xe8, 7, 0xd0, 0, 13, 0, 0,
}, "hello"...)

// example returns a section with two interfaces and three packets.
func example() []byte {
	b := pcapng.AppendSection(nil, "splitnic test", "über")
	b = pcapng.AppendInterface(b, "uplink queue 0", "through I/O unit unit", "udp", 65553)
	b = pcapng.AppendPacket(b, &pcapng.Packet{Time: begun, Length: len(udp), Data: udp, Flags: pcapng.Outbound})
	b = pcapng.AppendInterface(b, "direct beta", "", "", 65553)
	b = pcapng.AppendPacket(b, &pcapng.Packet{
		Interface: 1, Time: begun.Add(time.Nanosecond), Length: 9000, Data: udp[:45], Comment: []byte("a super-frame"),
		Flags: pcapng.Inbound | pcapng.ChecksumNotReady | pcapng.Segments,
	})
	b = pcapng.AppendPacket(b, &pcapng.Packet{
		Time: begun.Add(time.Second), Length: len(udp), Data: udp, Flags: pcapng.Inbound,
	})
	for i := range 2 {
		b = pcapng.AppendStatistics(b, &pcapng.Statistics{
			Interface: i, Start: begun, End: begun.Add(time.Minute), Received: 7, Dropped: 5,
		})
	}
	return b
}

// TestPrograms reads the example with tshark, capinfos and tcpdump.
func TestPrograms(t *testing.T) {
	testenv.NeedTools(t, "tshark", "capinfos", "tcpdump")
	file := filepath.Join(t.TempDir(), "x.pcapng")
	if err := os.WriteFile(file, example(), 0o600); err != nil {
		t.Fatal(err)
	}
	tell := func(name string, args ...string) string {
		t.Helper()
		c := exec.Command(name, args...)
		c.Env = append(os.Environ(), "TZ=UTC", "LC_ALL=C.UTF-8")
		var complaint bytes.Buffer
		c.Stderr = &complaint
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, &complaint)
		}
		return string(out)
	}
	fields := []string{"-r", file, "-T", "fields", "-E", "separator=|"}
	for _, f := range []string{
		"frame.interface_name", "frame.interface_description", "frame.packet_flags", "frame.time_epoch", "frame.len",
		"frame.cap_len", "frame.comment", "udp.payload",
	} {
		fields = append(fields, "-e", f)
	}
	want := `uplink queue 0|through I/O unit unit|0x00000002|1790000000.123456789|47|47||68656c6c6f
direct beta||0x00000a01|1790000000.123456790|9000|45|a super-frame|68656c
uplink queue 0|through I/O unit unit|0x00000001|1790000001.123456789|47|47||68656c6c6f
`
	if got := tell("tshark", fields...); got != want {
		t.Errorf("tshark reads\n%swant\n%s", got, want)
	}
	infos := tell("capinfos", file)
	for _, line := range []string{
		"Number of interfaces in file: 2", "Capture application: splitnic test", "Capture comment:     über",
		"Name = uplink queue 0", "Description = through I/O unit unit", "Filter string = udp", "Name = direct beta",
		"Number of stat entries = 1", "Number of packets = 2", "Capture length = 65553",
		"Time precision = nanoseconds (9)", "Encapsulation = Ethernet",
	} {
		if !strings.Contains(infos, line) {
			t.Errorf("capinfos does not say %q, but\n%s", line, infos)
		}
	}
	if n := strings.Count(tell("tcpdump", "-nr", file, "udp"), "\n"); n != 3 {
		t.Errorf("tcpdump reads %d packets", n)
	}
}

// FuzzRoundTrip writes a file and reads it with another implementation.
func FuzzRoundTrip(f *testing.F) {
	f.Add("uplink queue 0", "through a unit", "", udp, 0, uint32(1), int64(1_790_000_000_123_456_789), uint64(1),
		uint64(0))
	f.Add("", "", "a\x00b", []byte{1}, 3, uint32(0xffffffff), int64(0), uint64(1)<<63, ^uint64(0))
	f.Fuzz(func(
		t *testing.T, name, comment, filter string, data []byte, more int, flags uint32, at int64, received, dropped uint64,
	) {
		if at < 0 || len(data) > 1<<17 || max(len(name), len(comment), len(filter)) > 60000 {
			t.Skip() // before 1970, or longer than in any capture
		}
		when, length := time.Unix(0, at).UTC(), len(data)+more&0xff
		b := pcapng.AppendSection(nil, name, comment)
		b = pcapng.AppendInterface(b, name, comment, filter, 1<<18)
		p := pcapng.Packet{Time: when, Length: length, Data: data, Comment: []byte(comment), Flags: pcapng.Flags(flags)}
		before := len(b)
		b = pcapng.AppendPacket(pcapng.AppendPacket(b, &p), &p)
		if n := len(b) - before; n != 2*p.Size() {
			t.Errorf("two packets of %d bytes have %d bytes", p.Size(), n)
		}
		b = pcapng.AppendStatistics(b, &pcapng.Statistics{Start: when, End: when, Received: received, Dropped: dropped})
		if !linked(b) {
			t.Error("the lengths of the blocks do not agree")
		}
		r, err := pcapgo.NewNgReader(bytes.NewReader(b), pcapgo.NgReaderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got, ci, opts, err := r.ReadPacketDataWithOptions()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, data) || ci.Length != length || !ci.Timestamp.Equal(when) {
				t.Errorf("read % x, %+v, want % x, %d, %v", got, ci, data, length, when)
			}
			if comment != "" && !reflect.DeepEqual(opts.Comments, []string{comment}) {
				t.Errorf("comments %q, want %q", opts.Comments, comment)
			}
			if opts.Flags == nil || uint32(opts.Flags.Direction) != flags&3 {
				t.Errorf("flags %+v, want %#x", opts.Flags, flags)
			}
		}
		if _, _, err := r.ReadPacketData(); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
		i, err := r.Interface(0)
		if err != nil {
			t.Fatal(err)
		}
		if i.Name != name || i.Description != comment || i.Filter != filter {
			t.Errorf("interface %+v, want %q, %q, %q", i, name, comment, filter)
		}
		if s := i.Statistics; s.PacketsReceived != received || s.PacketsDropped != dropped || !s.EndTime.Equal(when) {
			t.Errorf("statistics %+v, want %d, %d, %v", s, received, dropped, when)
		}
	})
}

// linked reports whether each block has its length at its beginning and its end.
func linked(b []byte) bool {
	for len(b) > 0 {
		n := int(binary.LittleEndian.Uint32(b[4:]))
		if n > len(b) || n%4 != 0 || int(binary.LittleEndian.Uint32(b[n-4:])) != n {
			return false
		}
		b = b[n:]
	}
	return true
}
