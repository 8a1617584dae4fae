// Package wireshark has a dissector for captures of splitnic's traffic. The test dissects the
// messages of package protocol with tshark.
package wireshark

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// shown is what tshark shows for a packet.
type shown struct {
	fields   map[string][]string // values of each field, in their order; numbers are decimal
	names    []string            // the lines for users
	expert   bool                // the packet is shown as malformed
	splitnic bool                // the dissector has accepted the packet
}

func (s *shown) add(f *pdmlField) {
	value := f.Show
	switch n, err := strconv.ParseUint(value, 0, 64); {
	case err == nil:
		value = strconv.FormatUint(n, 10)
	case value == "True": // of newer versions of tshark
		value = "1"
	case value == "False":
		value = "0"
	}
	s.fields[f.Name] = append(s.fields[f.Name], value)
	s.names = append(s.names, f.ShowName)
	s.expert = s.expert || f.Name == "splitnic.malformed"
	for i := range f.Fields {
		s.add(&f.Fields[i])
	}
}

type pdmlField struct {
	Name     string      `xml:"name,attr"`
	Show     string      `xml:"show,attr"`
	ShowName string      `xml:"showname,attr"`
	Fields   []pdmlField `xml:"field"`
}

// dissect dissects the packets with tshark.
func dissect(t *testing.T, packets [][]byte, options ...string) []shown {
	t.Helper()
	testenv.NeedTools(t, "tshark")
	dir := t.TempDir()
	capture := filepath.Join(dir, "capture.pcap")
	if err := os.WriteFile(capture, pcap(packets), 0o600); err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs("splitnic.lua")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "tshark",
		append([]string{"-n", "-r", capture, "-X", "lua_script:" + script, "-T", "pdml"}, options...)...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "LC_ALL=C")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || strings.Contains(stderr.String(), ".lua") {
		t.Fatalf("tshark: %v\n%s", err, stderr.String())
	}
	var pdml struct {
		Packets []struct {
			Protos []struct {
				Name     string      `xml:"name,attr"`
				ShowName string      `xml:"showname,attr"`
				Fields   []pdmlField `xml:"field"`
			} `xml:"proto"`
		} `xml:"packet"`
	}
	if err := xml.Unmarshal(out, &pdml); err != nil {
		t.Fatal(err)
	}
	if len(pdml.Packets) != len(packets) {
		t.Fatalf("%d packets of %d", len(pdml.Packets), len(packets))
	}
	var all []shown
	for _, p := range pdml.Packets {
		s := shown{fields: make(map[string][]string)}
		for _, proto := range p.Protos {
			s.splitnic = s.splitnic || proto.Name == "splitnic"
			s.names = append(s.names, proto.ShowName)
			for i := range proto.Fields {
				s.add(&proto.Fields[i])
			}
		}
		all = append(all, s)
	}
	return all
}

// check expects the dissector to have accepted the packet as a correct one with these fields.
func (s *shown) check(t *testing.T, want map[string]string) {
	t.Helper()
	if !s.splitnic {
		t.Error("not taken for splitnic's")
		return
	}
	for name, value := range want {
		got := strings.Join(s.fields[name], " ")
		if got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
	if s.expert {
		t.Errorf("taken for malformed: %q", s.names)
	}
}

const transaction = 0x0102030405060708

func request(t protocol.CfgType, data []byte) []byte {
	return protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{TransactionContext: transaction, Type: t,
		Data: data})
}

func reply(t protocol.CfgType, status protocol.CfgStatus, data []byte) []byte {
	return protocol.AppendCfgUtilReply(nil, protocol.CfgUtilReply{TransactionContext: transaction, Type: t, Status: status,
		Data: data})
}

func vlans(numbers ...uint16) (s protocol.VLANSet) {
	for _, v := range numbers {
		s.Add(v)
	}
	return s
}

// goodFrame returns a virtio_net_hdr and an Ethernet frame, n bytes together.
func goodFrame(n int) []byte {
	f := make([]byte, n)
	f[0], f[1] = 1, 1 // VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_TCPV4
	f[2], f[4], f[5], f[6], f[8] = 54, 0xb4, 0x05, 34, 16
	copy(f[vnet.HdrLen:], "\x02\x00\x5e\x10\x00\x01\x02\x00\x5e\x10\x00\x02\x88\xb5")
	return f
}

func sendData(seq uint64, data []byte) []byte {
	b := append(make([]byte, protocol.SendDataOverhead), data...)
	protocol.PutSendData(b, seq, len(data))
	return b
}

// packOf returns a pack of frames.
func packOf(frames ...[]byte) []byte {
	b := make([]byte, protocol.PackHeaderSize)
	protocol.PutPackHeader(b, len(frames))
	for _, f := range frames {
		b = append(append(b, 0, 0), f...)
		protocol.PutPackRecord(b[len(b)-len(f)-protocol.PackRecordSize:], len(f))
	}
	return b
}

// directedEnd is one end of a connection of directed I/O.
var directedEnd = protocol.DirectedEnd{
	BoundChannel: protocol.BoundChannel{QPN: 17, PSN: 42, GID: [16]byte{0xfe, 0x80}}, MTU: 1024, Reads: 16,
}

// directedList returns a list with an element of each type.
func directedList() []byte {
	elements := []protocol.ListElement{
		{Fragment: protocol.Fragment{Platform: 77, Handle: 5, Addr: 4096, Len: 500}},
		{Data: []byte("hello"), EndOfBuffer: true},
		{Fragment: protocol.Fragment{Platform: 78, Handle: 7, Addr: 16384, Len: 600}, EndOfBuffer: true,
			Naming: protocol.NamedOnce},
	}
	a := protocol.AttributesOf(elements)
	chain := protocol.Fragment{Platform: 77, Handle: 6, Addr: 8192, Len: 28}
	return protocol.AppendListSequence(nil, &a, []protocol.Fragment{chain}, elements)
}

// messages has one message of each function and each request type.
var messages = []struct {
	name    string
	message []byte
	want    map[string]string
}{
	{"BufferRecvPool", protocol.AppendBufferRecvPool(nil, transaction,
		protocol.Pool{Ref: 7, Elements: 256, ElementSize: 2048, RKey: 0xA1B2C3D4, Addr: 0x7F0011223000,
			Context: protocol.PoolContext(1, 0xAB)},
		protocol.Pool{Ref: 300, Elements: 16, ElementSize: 65536, RKey: 5, Addr: 4096,
			Context: protocol.PoolContext(2, 1<<48-1)}),
		map[string]string{
			"splitnic.function": "1", "splitnic.version": "1", "splitnic.transaction": strconv.Itoa(transaction),
			"splitnic.pool": "7 300", "splitnic.elements": "256 16", "splitnic.element_size": "2048 65536",
			"splitnic.rkey": fmt.Sprint(0xA1B2C3D4, 5), "splitnic.address": fmt.Sprint(0x7F0011223000, 4096),
			"splitnic.own":     fmt.Sprint(0xAB, 1<<48-1),
			"splitnic.channel": "1 2",
		}},
	{"BufferRecvPool of windows", protocol.AppendBufferRecvPool(nil, 1,
		protocol.Pool{Ref: 7, Elements: 256, ElementSize: 2048, RKey: 9, Addr: 4096,
			Context: protocol.PoolContext(1, protocol.PoolInvalidate)},
		protocol.Pool{Ref: 8, Elements: 256, ElementSize: 2048, Addr: 4096,
			Context: protocol.PoolContext(1, protocol.PoolKeyFollows)}),
		map[string]string{"splitnic.invalidate": "1 0", "splitnic.key_follows": "0 1", "splitnic.rkey": "9 0"}},
	{"BufferRecvPoolGet", protocol.AppendBufferRecvPoolGet(nil,
		protocol.BufferRecvPoolGet{TransactionContext: 1, ElementSize: 9100, Elements: 32, Channel: 3}),
		map[string]string{"splitnic.function": "2", "splitnic.element_size": "9100", "splitnic.elements": "32",
			"splitnic.channel": "3"}},
	{"BufferRecvPoolUpdate", protocol.AppendBufferRecvPoolUpdate(nil, 0,
		protocol.PoolReturn{Pool: 7, Elements: []uint16{5, 0, 255}}, protocol.PoolReturn{Pool: 8, Elements: []uint16{15, 3}}),
		map[string]string{"splitnic.function": "3", "splitnic.pool": "7 8", "splitnic.count": "3 2",
			"splitnic.element": "5 0 255 15 3", "splitnic.padding": "0"}},
	{"BufferPoolFlushRequest", protocol.AppendBufferPoolFlushRequest(nil, 9, 7, 300|protocol.FlushGiveBack),
		map[string]string{"splitnic.function": "4", "splitnic.transaction": "9", "splitnic.give_back": "0 1",
			"splitnic.flushed": "7 300"}},
	{"BufferPoolFlushReply", protocol.AppendBufferPoolFlushReply(nil, 9),
		map[string]string{"splitnic.function": "5", "splitnic.transaction": "9"}},
	{"SendData", sendData(41, goodFrame(101)),
		map[string]string{
			"splitnic.function": "6", "splitnic.seq": "41", "splitnic.size": "101",
			"splitnic.frame.needs_csum": "1", "splitnic.frame.data_valid": "0", "splitnic.frame.gso_type": "1",
			"splitnic.frame.ecn":     "0",
			"splitnic.frame.hdr_len": "54", "splitnic.frame.gso_size": "1460", "splitnic.frame.csum_start": "34",
			"splitnic.frame.csum_offset": "16",
		}},
	{"SendData of a pack", sendData(42, packOf(goodFrame(101), goodFrame(60))),
		map[string]string{
			"splitnic.function": "6", "splitnic.seq": "42", "splitnic.size": "169", "splitnic.pack": "2",
			"splitnic.pack.length":      "101 60",
			"splitnic.frame.needs_csum": "1 1", "splitnic.frame.gso_size": "1460 1460",
		}},
	{"BufferRDMAIndicate", protocol.AppendBufferRDMAIndicate(nil, 0,
		protocol.Indication{Pool: 7, Element: 5, Length: 256}, protocol.Indication{Pool: 300, Element: 4000, Length: 65563}),
		map[string]string{"splitnic.function": "7", "splitnic.pool": "7 300", "splitnic.element": "5 4000",
			"splitnic.length": "256 65563"}},
	{"MAC", request(protocol.CfgMAC, protocol.AppendMAC(nil, protocol.MAC{2, 0, 0x5e, 0x10, 0, 1})),
		map[string]string{"splitnic.function": "8", "splitnic.request": "1", "splitnic.size": "6",
			"splitnic.mac": "02:00:5e:10:00:01"}},
	{"MTU", reply(protocol.CfgMTU, protocol.CfgOK, protocol.AppendMTU(nil, 9000)),
		map[string]string{"splitnic.function": "9", "splitnic.request": "2", "splitnic.status": "0", "splitnic.mtu": "9000"}},
	{"link state", reply(protocol.CfgLinkState, protocol.CfgOK,
		protocol.AppendLinkState(nil, protocol.LinkState{Up: true, Speed: 25000})),
		map[string]string{"splitnic.request": "3", "splitnic.link.up": "1", "splitnic.link.speed": "25000"}},
	{"DirectedRequest", protocol.AppendDirectedRequest(nil, protocol.DirectedRequest{
		TransactionContext: 9, Device: 3, Requester: 77, List: directedList(),
		Transactions: []protocol.DirectedTransaction{
			{Operation: protocol.DirectedWrite, Offset: 4096, Source: protocol.DirectedBuffers{Count: 1, Bytes: 505}},
			{Operation: protocol.DirectedRead, Offset: 512, Results: protocol.DirectedBuffers{Count: 1, Bytes: 600}},
		}}),
		map[string]string{
			"splitnic.function": "10", "splitnic.directed.operation": "2 1", "splitnic.directed.device": "3",
			"splitnic.directed.transactions": "2", "splitnic.directed.offset": "4096 512",
			"splitnic.directed.source.buffers": "1 0", "splitnic.directed.source.bytes": "505 0",
			"splitnic.directed.result.buffers": "0 1", "splitnic.directed.result.bytes": "0 600",
			"splitnic.directed.requester": "77",
			"splitnic.list.type":          "1 2 3 4 5 6", "splitnic.list.last": "0 0 0 0 0 1",
			"splitnic.list.end_of_buffer": "0 0 0 1 0 1",
			"splitnic.list.elements":      "3", "splitnic.list.buffers": "2", "splitnic.list.bytes": "1105",
			"splitnic.list.address_bits": "64", "splitnic.list.page_shift": "0",
			"splitnic.list.platform": "77 77 78", "splitnic.rkey": "6 5 7", "splitnic.address": "8192 4096 16384",
			"splitnic.length": "28 500 600", "splitnic.size": "5", "splitnic.data": "68:65:6c:6c:6f",
		}},
	{"DirectedRequest without a list", protocol.AppendDirectedRequest(nil, protocol.DirectedRequest{
		Device: 3, Transactions: []protocol.DirectedTransaction{{Operation: protocol.DirectedExchange, Offset: 7}}}),
		map[string]string{"splitnic.function": "10", "splitnic.directed.operation": "3", "splitnic.directed.offset": "7"}},
	{"DirectedReply",
		protocol.AppendDirectedReply(nil, protocol.DirectedReply{Status: protocol.DirectedAccess, Done: 3, Bytes: 12}),
		map[string]string{"splitnic.function": "11", "splitnic.directed.status": "4", "splitnic.directed.done": "3",
			"splitnic.directed.bytes": "12"}},
	{"DirectedConnect", protocol.AppendDirectedConnect(nil, protocol.DirectedConnect{From: 5, To: 6, Requester: 7,
		End: directedEnd}),
		map[string]string{"splitnic.function": "12", "splitnic.directed.from": "5", "splitnic.directed.to": "6",
			"splitnic.directed.requester": "7",
			"splitnic.directed.qpn":       "17", "splitnic.directed.psn": "42", "splitnic.directed.mtu": "1024",
			"splitnic.directed.reads": "16"}},
	{"DirectedConnected", protocol.AppendDirectedConnected(nil, protocol.DirectedConnected{End: directedEnd}),
		map[string]string{"splitnic.function": "13", "splitnic.directed.status": "0", "splitnic.directed.qpn": "17"}},
	{"keep-alive", request(protocol.CfgKeepAlive, nil),
		map[string]string{"splitnic.function": "8", "splitnic.request": "4", "splitnic.size": "0"}},
	{"offloads", request(protocol.CfgOffloads, protocol.AppendOffloads(nil, vnet.CSUM|vnet.TSO6)),
		map[string]string{"splitnic.request": "5", "splitnic.offload.csum": "1", "splitnic.offload.tso4": "0",
			"splitnic.offload.tso6": "1", "splitnic.offload.tsoecn": "0", "splitnic.offload.uso": "0"}},
	{"receive filter", request(protocol.CfgFilter, protocol.AppendReceiveFilter(nil, protocol.ReceiveFilter{
		AllMulti: true, Unicast: []protocol.MAC{{2, 0, 0, 0, 0, 2}},
		Multicast: []protocol.Group{{1, 0, 0x5e, 0, 0, 1}, {0x33, 0x33, 0, 0, 0, 1}},
	})),
		map[string]string{
			"splitnic.request": "6", "splitnic.filter.promisc": "0", "splitnic.filter.allmulti": "1",
			"splitnic.filter.unicasts": "1", "splitnic.filter.multicasts": "2",
			"splitnic.filter.unicast": "02:00:00:00:00:02", "splitnic.filter.multicast": "01:00:5e:00:00:01 33:33:00:00:00:01",
		}},
	{"VLANs", request(protocol.CfgVLAN, protocol.AppendVLANSet(nil, vlans(1, 7, 8, 4094))),
		map[string]string{"splitnic.request": "7", "splitnic.vlan": "1 7 8 4094"}},
	{"read statistics", reply(protocol.CfgStatsRead, protocol.CfgOK, protocol.AppendStatistics(nil, protocol.Statistics{
		RxFrames: 1 << 40, RxBytes: 2, TxFrames: 3, TxBytes: 4, RxDropped: 5, RxTooLong: 6, RxInvalid: 7, RxFiltered: 8,
		TxDropped: 9, TxSource: 10, TxVLAN: 11,
	})),
		map[string]string{
			"splitnic.request": "8", "splitnic.stat.rx_frames": "1099511627776", "splitnic.stat.rx_bytes": "2",
			"splitnic.stat.tx_frames": "3", "splitnic.stat.tx_bytes": "4", "splitnic.stat.rx_dropped": "5",
			"splitnic.stat.rx_too_long": "6",
			"splitnic.stat.rx_invalid":  "7", "splitnic.stat.rx_filtered": "8", "splitnic.stat.tx_dropped": "9",
			"splitnic.stat.tx_source": "10", "splitnic.stat.tx_vlan": "11",
		}},
	{"clear statistics", reply(protocol.CfgStatsClear, protocol.CfgOK,
		protocol.AppendStatistics(nil, protocol.Statistics{TxVLAN: 11})),
		map[string]string{"splitnic.request": "9", "splitnic.stat.rx_frames": "0", "splitnic.stat.tx_vlan": "11"}},
	{"reset", request(protocol.CfgReset, nil),
		map[string]string{"splitnic.request": "10", "splitnic.size": "0"}},
	{"sent", request(protocol.CfgSent, protocol.AppendSent(nil, protocol.Sent{Channel: 2, Next: 1 << 33})),
		map[string]string{"splitnic.request": "11", "splitnic.channel": "2", "splitnic.next": strconv.Itoa(1 << 33)}},
	{"denied", reply(protocol.CfgFilter, protocol.CfgDenied, nil),
		map[string]string{"splitnic.request": "6", "splitnic.status": "3", "splitnic.size": "0"}},
	{"binding", request(protocol.CfgBind, append(append([]byte{0xab}, make([]byte, 30)...), 0xcd)),
		map[string]string{"splitnic.request": "12", "splitnic.proof": "ab" + strings.Repeat(":00", 30) + ":cd"}},
	{"path", append(request(protocol.CfgPath, nil), make([]byte, 1004)...),
		map[string]string{"splitnic.request": "16", "splitnic.size": "0"}},
	{"unsupported", reply(13, protocol.CfgUnsupported, nil),
		map[string]string{"splitnic.request": "13", "splitnic.status": "1"}},
}

func TestMessages(t *testing.T) {
	var packets [][]byte
	for i, m := range messages {
		packets = append(packets, roce{opcode: sendOnly, psn: uint32(i), payload: m.message}.bytes())
	}
	all := dissect(t, packets)
	for i, m := range messages {
		t.Run(m.name, func(t *testing.T) {
			all[i].check(t, m.want)
		})
	}
	var seen []string
	for i := range all {
		seen = append(seen, all[i].names...)
	}
	// Every function, request type and status of the protocol has a case and a name.
	for f := protocol.FuncBufferRecvPool; f <= protocol.FuncCfgUtilReply; f++ {
		if want := fmt.Sprintf("Function: %v (%d)", f, uint16(f)); !slices.Contains(seen, want) {
			t.Errorf("nothing shown as %q", want)
		}
	}
	for c := protocol.CfgMAC; c <= protocol.CfgBind; c++ {
		if want := fmt.Sprintf("Request type: %v (%d)", c, uint32(c)); !slices.Contains(seen, want) {
			t.Errorf("nothing shown as %q", want)
		}
	}
	for _, s := range []protocol.CfgStatus{protocol.CfgOK, protocol.CfgUnsupported, protocol.CfgDenied} {
		if want := fmt.Sprintf("Status: %v (%d)", s, uint32(s)); !slices.Contains(seen, want) {
			t.Errorf("nothing shown as %q", want)
		}
	}
}

// TestLargeMessages dissects messages of several packets.
func TestLargeMessages(t *testing.T) {
	elements := make([]uint16, 1500)
	var indexes []string
	for i := range elements {
		elements[i] = uint16(i)
		indexes = append(indexes, strconv.Itoa(i))
	}
	update := protocol.AppendBufferRecvPoolUpdate(nil, 0, protocol.PoolReturn{Pool: 1, Elements: elements})
	data := sendData(1<<32, goodFrame(9014))
	var packets [][]byte
	packets = append(packets, segments(roce{opcode: sendFirst, psn: 0xfffffe, qpn: 5, payload: update}, 1024)...)
	first := len(packets)
	// the last two packets are repeated
	packets = append(packets, packets[first-2], packets[first-1])
	// a message in mode send-uc
	packets = append(packets, segments(roce{opcode: sendFirst | uc, psn: 77, qpn: 6, payload: data}, 4096)...)
	second := len(packets)
	// a message without a packet in the middle
	lost := segments(roce{opcode: sendFirst, psn: 200, qpn: 5, payload: update}, 1024)
	packets = append(packets, slices.Delete(lost, 1, 2)...)

	// With two passes, tshark dissects the packets again after a pass without fields.
	for _, options := range [][]string{nil, {"-2"}} {
		all := dissect(t, packets, options...)
		all[first-1].check(t, map[string]string{"splitnic.function": "3", "splitnic.pool": "1", "splitnic.count": "1500",
			"splitnic.element": strings.Join(indexes, " ")})
		all[first+1].check(t, map[string]string{"splitnic.function": "3", "splitnic.count": "1500"})
		all[second-1].check(t, map[string]string{"splitnic.function": "6", "splitnic.seq": "4294967296",
			"splitnic.size": "9014"})
		if got := all[second-1].fields["eth.type"]; !slices.Contains(got, strconv.Itoa(0x88b5)) {
			t.Errorf("Ethernet types %q", got)
		}
		for i := range all {
			if i != first-1 && i != first+1 && i != second-1 && all[i].splitnic {
				t.Errorf("packet %d was taken for a whole message: %q", i, all[i].names)
			}
		}
	}
}

// TestImmediateData dissects RDMA writes with immediate data, of one packet and of several.
func TestImmediateData(t *testing.T) {
	one := roce{opcode: writeOnlyImm, psn: 1, imm: uint32(protocol.PackImm(7, 5, 102)), payload: goodFrame(102)}
	many := segments(roce{opcode: writeFirst, psn: 2, imm: uint32(protocol.PackImm(255, 128, 5000)),
		payload: goodFrame(5000)}, 1024)
	// The length does not match, so the immediate data are not splitnic's.
	others := one
	others.imm = 0x07050100
	packets := append(append([][]byte{one.bytes()}, many...), others.bytes())
	all := dissect(t, packets)
	all[0].check(t, map[string]string{
		"splitnic.imm": strconv.Itoa(0x07050066), "splitnic.imm.pool": "7", "splitnic.imm.element": "5",
		"splitnic.imm.length":     "102",
		"splitnic.frame.gso_size": "1460",
	})
	all[len(many)].check(t, map[string]string{"splitnic.imm.pool": "255", "splitnic.imm.element": "128",
		"splitnic.imm.length": "5000"})
	for _, i := range []int{1, 2, len(many) + 1} {
		if all[i].splitnic {
			t.Errorf("packet %d was taken for splitnic's: %q", i, all[i].names)
		}
	}

	off := dissect(t, packets, "-o", "splitnic.immediate:FALSE")
	for i := range off {
		if off[i].splitnic {
			t.Errorf("packet %d was taken for splitnic's in spite of the preference", i)
		}
	}
}

// TestQueuePairs sets the preference for the queue pairs whose packets are dissected.
func TestQueuePairs(t *testing.T) {
	padded := protocol.AppendBufferRecvPoolUpdate(nil, 0, protocol.PoolReturn{Pool: 1, Elements: []uint16{1}})
	padded[len(padded)-1] = 1
	message := messages[0].message
	packets := [][]byte{
		roce{opcode: sendOnly, qpn: 17, payload: message}.bytes(),
		roce{opcode: sendOnly, qpn: 25, payload: message}.bytes(),
		roce{opcode: sendOnly, qpn: 21, payload: append(message[:len(message):len(message)], 0, 0, 0, 0)}.bytes(),
		roce{opcode: sendOnly, qpn: 22, payload: padded}.bytes(),
		roce{opcode: writeOnlyImm, qpn: 23, imm: 0x07050100, payload: goodFrame(102)}.bytes(),
		roce{opcode: sendOnly, qpn: 20, payload: []byte("hello, this is something else altogether")}.bytes(),
	}
	for i, s := range dissect(t, packets) {
		if want := i < 2 || i == 3; s.splitnic != want { // in packet 3 only the padding is wrong
			t.Errorf("by its content packet %d is splitnic's: %t", i, s.splitnic)
		}
	}
	all := dissect(t, packets, "-o", "splitnic.qps:17,20-23")
	all[0].check(t, messages[0].want)
	if all[1].splitnic {
		t.Error("a packet to queue pair 25 was taken for splitnic's")
	}
	for i := 2; i < len(all); i++ {
		if !all[i].splitnic || !all[i].expert {
			t.Errorf("packet %d: taken for splitnic's %t, for malformed %t", i, all[i].splitnic, all[i].expert)
		}
	}
}

// TestEncrypted dissects an encrypted session: what is not encrypted is shown, and nothing is decoded
// or malformed.
func TestEncrypted(t *testing.T) {
	sealed := bytes.Repeat([]byte{0xa5}, 100)
	update := bytes.Clone(messages[0].message) // as good as any ciphertext
	packets := [][]byte{
		roce{opcode: sendOnly, qpn: 17, payload: sealed}.bytes(),
		roce{opcode: sendOnly, qpn: 18, payload: sendData(7, sealed)}.bytes(),
		roce{opcode: writeOnlyImm, qpn: 18, imm: 0x07050064, payload: sealed}.bytes(),
		roce{opcode: sendOnly, qpn: 17, payload: update}.bytes(),
	}
	hexadecimal := strings.Repeat("a5:", 99) + "a5"
	for _, qps := range []string{"", "17-18"} {
		all := dissect(t, packets, "-o", "splitnic.encrypted:TRUE", "-o", "splitnic.qps:"+qps)
		all[0].check(t, map[string]string{"splitnic.encrypted": hexadecimal, "splitnic.function": ""})
		all[1].check(t, map[string]string{"splitnic.encrypted": hexadecimal, "splitnic.seq": "7", "splitnic.size": "100"})
		all[2].check(t, map[string]string{"splitnic.encrypted": hexadecimal, "splitnic.imm.pool": "7",
			"splitnic.imm.element": "5", "splitnic.imm.length": "100", "splitnic.frame.flags": ""})
		all[3].check(t, map[string]string{"splitnic.function": "", "splitnic.pool": ""})
	}
	short := [][]byte{roce{opcode: sendOnly, qpn: 17, payload: sealed[:27]}.bytes()}
	if s := dissect(t, short, "-o", "splitnic.encrypted:TRUE"); s[0].splitnic {
		t.Error("27 bytes were taken for an encrypted message")
	}
	if s := dissect(t, short, "-o", "splitnic.encrypted:TRUE", "-o", "splitnic.qps:17"); !s[0].expert {
		t.Error("27 bytes to a queue pair of splitnic were not taken for malformed")
	}
}

// TestDamaged dissects truncated and changed messages and expects no error in the dissector.
func TestDamaged(t *testing.T) {
	var packets [][]byte
	for _, m := range messages {
		for cut := range len(m.message) {
			if cut > 60 {
				break
			}
			packets = append(packets, roce{opcode: sendOnly, qpn: 9, payload: m.message[:cut]}.bytes())
			b := slices.Clone(m.message)
			b[cut] ^= 0xff
			packets = append(packets, roce{opcode: sendOnly, qpn: 9, payload: b}.bytes())
		}
	}
	for _, options := range [][]string{nil, {"-o", "splitnic.qps:9"}, {"-o", "splitnic.encrypted:TRUE"}} {
		for i, s := range dissect(t, packets, options...) {
			for _, name := range s.names {
				if strings.Contains(name, "Lua Error") {
					t.Fatalf("%x: %s", packets[i], name)
				}
			}
		}
	}
}
