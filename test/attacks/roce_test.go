package attacks

import (
	"bytes"
	"encoding/hex"
	"testing"
)

// sniffed is a packet of rdma_rxe: a write of 113 bytes.
const sniffed = "52d44ca5fa2d92f21729fbed0800450000b4bc324000401168760ac700020ac70001c17c12b700a000000bb0ffff0000" +
	"001480d081d000007fffa838a000000005400000007100000071010000000000220006003a65de7facd4023cea5fe2b70800450000598fd2" +
	"4000401196250a4d00020a4d0001e6439c44004514f36120736563726574206f662074686520686f6e65737420686f73742c206e756d6265" +
	"7220312e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e0000000efc390e"

// sniffedSend is a packet of rdma_rxe: a SEND of 40 bytes.
const sniffedSend = "16531c4a41e8a69822cad139080045000054655c40004011bfac0ac700020ac70001c15612b7004000000480ffff0000" +
	"001380cde3fa0008000100000000000000060000000600000014000000000000000201005e0000013333000000014020e0c1"

// TestSniffedWrite parses a packet of a device, and makes it again from its parts: the attacker's
// packets are not dropped for their form.
func TestSniffedWrite(t *testing.T) {
	packet, err := hex.DecodeString(sniffed)
	if err != nil {
		t.Fatal(err)
	}
	w, ok := ParseTransfer(append(packet, 0)) // with padding by Ethernet
	if !ok || w.QueueTo != 0x14 || w.PSN != 0xd081d0 || w.Addr != 0x7fffa838a000 || w.Key != 0x540 || w.Imm != 113 ||
		len(w.Data) != 113 || w.To().String() != "10.199.0.1" {
		t.Fatalf("%v: %+v", ok, w)
	}
	if again := w.Packet(packet[6:12]); !bytes.Equal(again, packet) {
		t.Errorf("made again\n%x, not\n%x", again, packet)
	}
	w.PSN, w.Addr, w.Imm, w.Data = 1, 2, 3, []byte("else")
	f, ok := ParseTransfer(w.Packet(packet[6:12]))
	if !ok || f.PSN != 1 || f.Addr != 2 || f.Imm != 3 || string(f.Data) != "else" || f.Key != w.Key ||
		f.QueueTo != w.QueueTo {
		t.Errorf("%v: %+v", ok, f)
	}
	packet[writtenAt] ^= 1
	if _, ok := ParseTransfer(packet); ok {
		t.Error("a packet with a wrong ICRC")
	}
	for n := range packet {
		if _, ok := ParseTransfer(packet[:n]); ok {
			t.Errorf("%d bytes of a packet", n)
		}
	}
}

// TestSniffedSend is TestSniffedWrite for a SEND.
func TestSniffedSend(t *testing.T) {
	packet, err := hex.DecodeString(sniffedSend)
	if err != nil {
		t.Fatal(err)
	}
	s, ok := ParseTransfer(packet)
	if !ok || !s.Sent() || s.QueueTo != 0x13 || s.PSN != 0xcde3fa || len(s.Data) != 40 || s.To().String() != "10.199.0.1" {
		t.Fatalf("%v: %+v", ok, s)
	}
	if again := s.Packet(packet[6:12]); !bytes.Equal(again, packet) {
		t.Errorf("made again\n%x, not\n%x", again, packet)
	}
	s.PSN, s.Data = 1, []byte("else!")
	f, ok := ParseTransfer(s.Packet(packet[6:12]))
	if !ok || f.PSN != 1 || string(f.Data) != "else!" || f.QueueTo != s.QueueTo {
		t.Errorf("%v: %+v", ok, f)
	}
}
