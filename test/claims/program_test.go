package claims

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/verbs"
)

// program starts the built program with the arguments of an endpoint. At the end of the test the
// program gets SIGTERM and must exit without an error.
func program(t *testing.T, role string, args ...string) {
	t.Helper()
	bin := os.Getenv("SPLITNIC_BIN")
	if bin == "" {
		bin = "../../build/splitnic"
	}
	if _, err := os.Stat(bin); err != nil {
		testenv.Missing(t, "splitnic", "the binary is missing: %v; build it, or name it with SPLITNIC_BIN", err)
	}
	args = append([]string{role, "--insecure", "--peer-timeout", "10s", "--status-socket",
		filepath.Join(t.TempDir(), "status")}, args...)
	cmd := exec.Command(bin, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := cmd.Process.Signal(syscall.SIGTERM)
		if werr := cmd.Wait(); err != nil || werr != nil {
			t.Errorf("%s: %v, %v\n%s", role, err, werr, &out)
		}
	})
}

// TestRDMAClaim22Program runs the program as a host and as an I/O unit, and checks the cells that
// arrive at each device. Data arrives in RDMA writes to buffers that the receiving side had
// advertised before in a Send. Each write contains which buffer it has filled, and with how many
// bytes. A write may carry several frames.
func TestRDMAClaim22Program(t *testing.T) {
	testenv.NeedTUN(t)
	names := testenv.NeedRDMA(t, 2)
	unitAddr := deviceAddress(t, names[0])
	cardNS, _ := newLAN(t, lanAddr)
	hostNS := testenv.NetNS(t)
	wires := map[string]*wiretap{unitSide: tapWire(t, names[0]), hostSide: tapWire(t, names[1])}
	program(t, "iounit", "--device", names[0], "--listen", unitAddr, "--lan", "macvtap:eth1", "--netns", cardNS)
	program(t, "host", "--device", names[1], "--iounit", unitAddr, "--name", "sn0", "--netns", hostNS)
	poll(t, func() error {
		if l := testenv.Link(t, hostNS, "sn0"); l == nil || l.Attrs().OperState != netlink.OperUp {
			return fmt.Errorf("sn0 has no carrier: %v", l)
		}
		return nil
	})
	testenv.Address(t, hostNS, "sn0", hostAddr+"/24")
	ping(t, hostNS, lanAddr, 100, 1000)
	for _, side := range sides {
		poll(t, func() error {
			if n, err := indicatedWrites(wires[side], wires[other(side)]); err != nil || n < 100 {
				return fmt.Errorf("%s: %d of 100 marked frames arrived: %w", side, n, err)
			}
			return nil
		})
	}
}

// deviceAddress returns the IP address of an RDMA device's netdevice.
func deviceAddress(t *testing.T, rdma string) string {
	t.Helper()
	netdevs := must(verbs.NetdevOf(rdma))(t)
	link := must(netlink.LinkByName(netdevs[0]))(t)
	addrs := must(netlink.AddrList(link, netlink.FAMILY_V4))(t)
	if len(addrs) == 0 {
		t.Fatalf("%s has no address", netdevs[0])
	}
	return addrs[0].IP.String()
}

// indicatedWrites checks the RDMA writes that arrived at the wire tap here against the pools that
// this side advertised, whose messages arrived at the wire tap there. It returns the number of
// marked frames in the writes.
func indicatedWrites(here, there *wiretap) (marked int, err error) {
	var pools []protocol.Pool
	for _, c := range there.all() {
		if c.opcode != sendOnly {
			continue
		}
		if m, err := protocol.DecodeBufferRecvPool(c.payload); err == nil {
			for i := range m.Len() {
				pools = append(pools, m.At(i))
			}
		}
	}
	var data []byte
	var first cell
	for _, c := range here.all() {
		switch c.opcode {
		case writeFirst, writeOnly, writeOnlyImm:
			first, data = c, nil
		}
		switch c.opcode {
		case writeFirst, writeMiddle, writeLastImm, writeOnlyImm:
			data = append(data, c.payload...)
		case writeLast, writeOnly:
			return 0, fmt.Errorf("a write to %#x without immediate data", c.va)
		}
		if c.opcode != writeLastImm && c.opcode != writeOnlyImm {
			continue
		}
		pool, element, length := protocol.ImmData(c.imm).Unpack()
		found := false
		for _, p := range pools {
			if p.Ref == uint32(pool) && p.RKey == first.rkey && uint32(element) < p.Elements &&
				first.va == p.Addr+uint64(element)*uint64(p.ElementSize) {
				found = true
			}
		}
		if !found || int(length) != len(data) || first.length != uint32(length) {
			return 0, fmt.Errorf("%d bytes written to %#x say pool %d, element %d, %d bytes; lent: %+v", len(data), first.va,
				pool, element, length, pools)
		}
		n, err := markedFrames(data)
		if err != nil {
			return 0, fmt.Errorf("written to %#x: %w", first.va, err)
		}
		marked += n
	}
	return marked, nil
}

// markedFrames returns the number of marked frames in the data of a write, which is one frame or a
// pack.
func markedFrames(data []byte) (n int, err error) {
	frames, err := framesIn(data)
	for _, f := range frames {
		if bytes.Contains(f, []byte(mark)) {
			n++
		}
	}
	return n, err
}

// TestMarkedFrames expects markedFrames to count the frames of a write, not the writes.
func TestMarkedFrames(t *testing.T) {
	frame := func(s string) []byte { return append(make([]byte, 60), s...) }
	for _, c := range []struct {
		name   string
		frames [][]byte
		want   int
	}{
		{"none", [][]byte{frame("other")}, 0},
		{"one", [][]byte{frame(mark + mark)}, 1},
		{"some of a pack", [][]byte{frame(mark + mark), frame("other"), frame(mark)}, 2},
	} {
		data := c.frames[0]
		if len(c.frames) > 1 {
			data = make([]byte, protocol.PackHeaderSize)
			protocol.PutPackHeader(data, len(c.frames))
			for _, f := range c.frames {
				record := make([]byte, protocol.PackRecordSize)
				protocol.PutPackRecord(record, len(f))
				data = append(append(data, record...), f...)
			}
		}
		if n, err := markedFrames(data); n != c.want || err != nil {
			t.Errorf("%s: %d marked frames, %v; want %d", c.name, n, err, c.want)
		}
	}
	broken := make([]byte, protocol.PackHeaderSize)
	protocol.PutPackHeader(broken, 3)
	if n, err := markedFrames(broken); err == nil {
		t.Errorf("a pack without its frames counts as %d", n)
	}
}
