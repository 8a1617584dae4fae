package e2e

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
)

// Opcodes of the base transport header, reliable connected service
// (InfiniBand specification, volume 1, §9.2.1).
var (
	sendOpcodes  = []byte{0, 1, 2, 3, 4, 5}   // SEND first, middle, last, only; with immediate
	writeOpcodes = []byte{6, 7, 8, 9, 10, 11} // RDMA WRITE, likewise
	withImm      = []byte{9, 11}              // RDMA WRITE last and only, with immediate
	acknowledge  = byte(17)
	rocePort     = uint16(4791)
)

// endpoint identifies a queue pair at one end of the fabric.
type endpoint struct {
	addr netip.Addr
	qpn  uint32
}

// flow counts the packets to a queue pair by opcode.
type flow [256]int

func (f *flow) String() string {
	var s []string
	for op, n := range f {
		if n > 0 {
			s = append(s, fmt.Sprintf("%d of opcode %d", n, op))
		}
	}
	return strings.Join(s, ", ")
}

// roce parses a RoCE v2 packet. It returns the destination, the opcode, and the syndrome of an
// acknowledgement. ok is false for other packets.
func roce(frame []byte) (to endpoint, opcode, syndrome byte, ok bool) {
	if len(frame) < 14 {
		return
	}
	var udp []byte
	switch proto, b := binary.BigEndian.Uint16(frame[12:]), frame[14:]; {
	case proto == unix.ETH_P_IP && len(b) >= 20 && b[9] == unix.IPPROTO_UDP:
		to.addr, _ = netip.AddrFromSlice(b[16:20])
		udp = b[min(len(b), int(b[0]&15)*4):]
	case proto == unix.ETH_P_IPV6 && len(b) >= 40 && b[6] == unix.IPPROTO_UDP:
		to.addr, _ = netip.AddrFromSlice(b[24:40])
		udp = b[40:]
	}
	if len(udp) < 8+12 || binary.BigEndian.Uint16(udp[2:]) != rocePort {
		return
	}
	bth := udp[8:]
	opcode = bth[0]
	to.qpn = binary.BigEndian.Uint32(bth[4:]) & 0xffffff
	if opcode == acknowledge && len(bth) >= 16 {
		syndrome = bth[12]
	}
	return to, opcode, syndrome, true
}

// dataOpcodes has, for each mode, all opcodes of packets to data queue pairs, and the opcodes of
// packets that end the transfer of a frame.
var dataOpcodes = map[string]struct{ all, last []byte }{
	"imm":      {writeOpcodes, withImm},
	"indicate": {[]byte{6, 7, 8, 10}, []byte{8, 10}},
	"send":     {[]byte{0, 1, 2, 4}, []byte{2, 4}},
	"send-uc":  {[]byte{0x20, 0x21, 0x22, 0x24}, []byte{0x22, 0x24}}, // unreliable connected service
}

// TestRDMAWire captures packets on the fabric's cable. On the data channels frames may cross only with
// the opcodes of the mode, and on the control channel messages may cross only by SENDs.
func TestRDMAWire(t *testing.T) { inEachMode(t, "macvtap", testWire) }

func testWire(t *testing.T, r *fixture) {
	flows := map[endpoint]*flow{}
	rnr := 0
	c := startCapture(t, fabricNS, fabricPort, func(c captured) {
		to, opcode, syndrome, ok := roce(c.frame)
		if !ok {
			return
		}
		if flows[to] == nil {
			flows[to] = new(flow)
		}
		flows[to][opcode]++
		if opcode == acknowledge && syndrome>>5 == 1 {
			rnr++
		}
	})
	h := r.host(t)
	ping(t, h.ns, addr(0), 5, 1000)
	testenv.Exchange(t, r.lan, addr(0), h.ns, 1<<20)
	s, u := h.hostStatus(), r.unit.unitStatus()
	c.close()
	if s.Traffic.Mode != r.mode {
		t.Errorf("the host's session is in mode %q", s.Traffic.Mode)
	}

	hostAddr, unitAddr := netip.MustParseAddr("10.199.0.2"), netip.MustParseAddr(unitAddress)
	ch := s.Traffic.Channels[0]
	if back := u.Hosts[0].Traffic.Channels[0]; back.QPN != ch.PeerQPN || back.PeerQPN != ch.QPN {
		t.Errorf("the two ends name different queue pairs: %d and %d, %d and %d", ch.QPN, ch.PeerQPN, back.PeerQPN, back.QPN)
	}
	data := map[endpoint]bool{{hostAddr, ch.QPN}: true, {unitAddr, ch.PeerQPN}: true}
	control := 0
	for to, f := range flows {
		kind, allowed := "control", sendOpcodes
		if data[to] {
			kind, allowed = "data", dataOpcodes[r.mode].all
		} else {
			control++
		}
		pushed, transfers := 0, 0
		for op, n := range f {
			switch {
			case n == 0:
			case byte(op) == acknowledge: // the acknowledged packets are counted at the other end
			case slices.Contains(allowed, byte(op)):
				pushed += n
				if slices.Contains(dataOpcodes[r.mode].last, byte(op)) {
					transfers += n
				}
			default:
				t.Errorf("%d packets with opcode %d to %s queue pair %d at %v", n, op, kind, to.qpn, to.addr)
			}
		}
		if pushed == 0 {
			t.Errorf("no message to %s queue pair %d at %v: %v", kind, to.qpn, to.addr, f)
		}
		if data[to] && transfers < 20 {
			t.Errorf("%d frames to queue pair %d at %v: %v", transfers, to.qpn, to.addr, f)
		}
		if r.mode == "send-uc" && data[to] && f[acknowledge] > 0 {
			t.Errorf("%d acknowledgements to queue pair %d at %v, which is unacknowledged", f[acknowledge], to.qpn, to.addr)
		}
		t.Logf("%s queue pair %d at %v: %v", kind, to.qpn, to.addr, f)
		delete(data, to)
	}
	if len(data) > 0 || control != 2 {
		t.Errorf("traffic to 2 data and 2 control queue pairs expected; seen: %d, without the data queue pairs %v",
			len(flows), data)
	}
	if rnr > 0 {
		t.Errorf("%d packets say that a receiver was not ready", rnr)
	}
}

// counters reads the hardware counters of an RDMA device.
func counters(t testing.TB, device string) map[string]int {
	t.Helper()
	files, err := filepath.Glob("/sys/class/infiniband/" + device + "/ports/1/hw_counters/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no counters: %v", device, err)
	}
	values := map[string]int{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if values[filepath.Base(f)], err = strconv.Atoi(strings.TrimSpace(string(b))); err != nil {
			t.Fatal(err)
		}
	}
	return values
}

// TestRDMACredits loads both directions at the same time, with large and small frames. No receiver
// may ever be not ready (RNR NAK), and no credit may be lost.
func TestRDMACredits(t *testing.T) {
	testenv.NeedTools(t, "ping")
	inEachMode(t, "macvtap", testCredits)
}

func testCredits(t *testing.T, r *fixture) {
	h := r.host(t)
	devices := []string{unitDevice, hostDevice}
	before := map[string]map[string]int{}
	for _, d := range devices {
		before[d] = counters(t, d)
	}
	done := make(chan struct{}, 2)
	go func() {
		defer func() { done <- struct{}{} }()
		manyConnections(t, h.ns, echoTCP(t, r.lan, addr(0)), 8, 100_000)
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		manyConnections(t, r.lan, echoTCP(t, h.ns, h.addr()), 8, 100_000)
	}()
	testenv.Run(t, h.ns, "ping", "-f", "-q", "-c", "1000", "-s", "100", addr(0))
	<-done
	<-done
	for _, d := range devices {
		for name, value := range counters(t, d) {
			change := value - before[d][name]
			switch {
			case change == 0:
			case strings.Contains(name, "rnr"):
				t.Errorf("%s of %s grew by %d", name, d, change)
			case strings.Contains(name, "retry"), strings.Contains(name, "duplicate"), strings.Contains(name, "seq"):
				t.Logf("%s of %s grew by %d", name, d, change)
			}
		}
	}
	// When there is no more traffic, the ledgers of both ends have to agree.
	var host, unit channel
	agree := func(granted, lent ledger) bool {
		return granted.Available == lent.Lent && granted.Out == lent.Consumed+lent.Returning
	}
	eventually(t, func() bool {
		if r.mode == "send-uc" {
			// The loss of the last frame is detected when the next frame arrives.
			_ = echo(h.ns, netip.MustParseAddr(addr(0)), 1, 56)
		}
		host = h.hostStatus().Traffic.Channels[0]
		unit = r.unit.unitStatus().Hosts[0].Traffic.Channels[0]
		for _, l := range []ledger{host.Remote, host.Local, unit.Remote, unit.Local} {
			if sum := l.Available + l.Out + l.Lent + l.Consumed + l.Returning; sum != l.Elements || sum == 0 {
				t.Fatalf("%d elements are accounted for as %d: %+v", l.Elements, sum, l)
			}
		}
		return agree(host.Remote, unit.Local) && agree(unit.Remote, host.Local) &&
			host.TxFrames == unit.RxFrames+unit.RxLost+unit.RxLate && unit.TxFrames == host.RxFrames+host.RxLost+host.RxLate
	}, "ledgers that agree")
	if lost := host.RxLost + unit.RxLost; lost > 0 {
		if r.mode != "send-uc" {
			t.Errorf("%d frames were lost", lost)
		}
		t.Logf("%d frames of %d were lost", lost, host.TxFrames+unit.TxFrames)
	}
	if host.TxFrames < 1000 || unit.TxFrames < 1000 {
		t.Errorf("%d frames to the I/O unit and %d to the host: too few for a load", host.TxFrames, unit.TxFrames)
	}
	if host.RxLost+unit.RxLost == 0 && (host.TxBytes != unit.RxBytes || host.RxBytes != unit.TxBytes) {
		t.Errorf("bytes sent and received differ: %+v, %+v", host, unit)
	}
	if bad := host.RxDropped + host.RxOverMTU + host.TxTooLong + unit.RxDropped + unit.RxOverMTU +
		unit.TxTooLong; bad != 0 {
		t.Errorf("frames were dropped: %+v, %+v", host, unit)
	}
}
