package wireshark

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

const pathMTU = 1024

// fabric has the packets of a session as they are on the fabric, and as decrypt.py should write them.
type fabric struct {
	packets, want [][]byte
	qpn           uint32            // is added to the numbers of the queue pairs
	psn           map[uint32]uint32 // of the next packet to each queue pair
	keys          [2]*seal.Keys     // of the host and of the I/O unit
	random        *rand.Rand
}

func newFabric(t *testing.T, c seal.Cipher, secret byte) *fabric {
	t.Helper()
	f := &fabric{psn: make(map[uint32]uint32), random: rand.New(rand.NewPCG(1, uint64(secret)))}
	for i := range f.keys {
		k, err := seal.NewKeys(c, [seal.SecretSize]byte{secret}, i == 0)
		if err != nil {
			t.Fatal(err)
		}
		f.keys[i] = k
	}
	return f
}

// keyLog returns the lines of the sessions.
func keyLog(t *testing.T, sessions ...*fabric) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte("CLIENT_RANDOM 00 11\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := seal.OpenKeyLog(path)
	for i, f := range sessions {
		for _, k := range f.keys {
			err = errors.Join(err, l.Add(fmt.Sprint("session", i), k))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// frame returns n random bytes.
func (f *fabric) frame(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(f.random.Uint32())
	}
	return b
}

// post adds the packets of p, whose payload is sealed, and what they should become: q in as many
// packets, the last of which are shorter.
func (f *fabric) post(p, q roce) {
	if _, ok := f.psn[p.qpn]; !ok {
		f.psn[p.qpn] = 0xfffffc + p.qpn // soon 0
	}
	p.psn = f.psn[p.qpn]
	plain := q.payload
	for _, s := range split(p, pathMTU) {
		f.packets = append(f.packets, s.bytes())
		n := min(pathMTU, len(plain))
		s.payload, s.total, s.imm = plain[:n], len(q.payload), q.imm
		f.want, plain = append(f.want, s.bytes()), plain[n:]
		f.psn[p.qpn] = s.psn + 1
	}
}

// message adds a control message.
func (f *fabric) message(s *seal.Sealer, qpn uint32, message []byte) {
	f.post(roce{opcode: sendFirst, qpn: qpn, payload: s.Seal(withTag(message), 0, 0)},
		roce{opcode: sendFirst, qpn: qpn, payload: message})
}

func withTag(b []byte) []byte { return append(make([]byte, 0, len(b)+seal.Overhead), b...) }

// write adds a transfer of one of the modes with writes, told of by its immediate data or not.
func (f *fabric) write(s *seal.Sealer, qpn uint32, p *protocol.Pool, element uint32, told bool, frame []byte) {
	imm := func(n int) uint32 {
		if !told {
			return 0
		}
		return uint32(protocol.PackImm(uint8(p.Ref), uint8(element), uint16(n)))
	}
	w := roce{opcode: writeFirst, qpn: qpn, address: p.Addr + uint64(element)*uint64(p.ElementSize)}
	q := w
	w.payload, w.imm = s.Seal(withTag(frame), p.Ref, element), imm(len(frame)+seal.Overhead)
	q.payload, q.imm = frame, imm(len(frame))
	f.post(w, q)
}

// send adds a transfer of a send mode.
func (f *fabric) send(s *seal.Sealer, qpn uint32, p *protocol.Pool, number uint64, frame []byte, service byte) {
	w := roce{opcode: sendFirst | service, qpn: qpn,
		payload: sendData(number, s.Seal(withTag(frame), p.Ref, uint32(number%uint64(p.Elements))))}
	f.post(w, roce{opcode: w.opcode, qpn: qpn, payload: sendData(number, frame)})
}

// sizes of the frames: among them those of which the tag lies in a packet of its own, or in two.
var sizes = []int{60, 1500, pathMTU, pathMTU - 16, pathMTU - 17, pathMTU - 7, 9000, 1, 3 * pathMTU}

// session adds a session in a mode: each side lends a pool, and the other one uses it.
func (f *fabric) session(mode protocol.Mode) {
	for i, k := range f.keys {
		// The control messages come from the other side.
		other := f.keys[1-i]
		p := protocol.Pool{Ref: uint32(7 + i), Elements: 16, ElementSize: 16384, RKey: 5, Addr: 0x7f0000100000,
			Context: protocol.PoolContext(2, 0)}
		older := p
		older.Ref, older.Context = p.Ref+2, protocol.PoolContext(1, 0) // lies at the same address
		control, data := other.Sealer(0, ""), k.Sealer(2, string(mode))
		toControl, toData := f.qpn+41-uint32(i), f.qpn+50+uint32(i)
		f.message(control, toControl, request(protocol.CfgBind, f.frame(32)))
		f.message(control, toControl, request(protocol.CfgPath, make([]byte, pathMTU-20)))
		f.message(control, toControl, protocol.AppendBufferRecvPool(nil, 1, p, older))
		for n, size := range sizes {
			if n%3 == 2 {
				k.Renew()
				other.Renew()
			}
			switch mode {
			case protocol.ModeSend:
				f.send(data, toData, &p, uint64(n), f.frame(size), 0)
			case protocol.ModeSendUC:
				f.send(data, toData, &p, uint64(n), f.frame(size), uc)
			default:
				f.write(data, toData, &p, uint32(n+3), mode == protocol.ModeImm && n%2 == 0, f.frame(size))
			}
			f.message(control, toControl, protocol.AppendBufferRecvPoolUpdate(nil, 0,
				protocol.PoolReturn{Pool: p.Ref, Elements: []uint16{uint16(n)}}))
		}
	}
}

// decrypt runs decrypt.py, and returns the packets that it has written, and what it says.
func decrypt(t *testing.T, keys string, packets [][]byte) ([][]byte, string) {
	t.Helper()
	out, said, err := tryDecrypt(t, keys, pcap(packets))
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	return out, said
}

func tryDecrypt(t *testing.T, keys string, capture []byte) ([][]byte, string, error) {
	t.Helper()
	testenv.NeedTools(t, "python3")
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, capture, 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(t.Context(), "python3", "decrypt.py", keys, in, out).CombinedOutput()
	if err != nil {
		return nil, string(said), err
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var packets [][]byte
	for b = b[24:]; len(b) > 0; {
		n := 16 + binary.LittleEndian.Uint32(b[8:])
		packets, b = append(packets, b[16:n]), b[n:]
	}
	return packets, string(said), nil
}

func equalPackets(t *testing.T, got, want [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d packets, want %d", len(got), len(want))
	}
	wrong := 0
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			if wrong++; wrong < 4 {
				t.Errorf("packet %d: %.100x, want %.100x", i, got[i], want[i])
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d packets are wrong", wrong, len(got))
	}
}

// TestDecrypt decrypts sessions of each mode and cipher in one capture, among others.
func TestDecrypt(t *testing.T) {
	for _, mode := range protocol.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			other := newFabric(t, seal.AES128GCM, 9)
			other.message(other.keys[0].Sealer(0, ""), 60, other.frame(100)) // whose key is not in the log
			packets, want := other.packets, slices.Clone(other.packets)
			logged := []*fabric{newFabric(t, seal.AES128GCM, 8)}
			for i, c := range seal.Ciphers() {
				f := newFabric(t, c, byte(i))
				f.qpn = uint32(100 * i)
				f.session(mode)
				logged = append(logged, f)
				packets, want = append(packets, f.packets...), append(want, f.want...)
			}
			clear := roce{opcode: sendOnly, qpn: 61, payload: messages[0].message}.bytes()
			packets = append(packets, clear, []byte("no packet of a fabric"))
			want = append(want, packets[len(packets)-2:]...)
			got, said := decrypt(t, keyLog(t, logged...), packets)
			equalPackets(t, got, want)
			for i := range seal.Ciphers() {
				line := fmt.Sprintf("session%d to the host, channel 2: %d decrypted, 0 not", i+1, len(sizes))
				if !strings.Contains(said, line) {
					t.Errorf("says %q, without %q", said, line)
				}
			}
		})
	}
}

// TestDecryptDamaged leaves packets of a capture out and repeats others, as a capture does that was
// made while packets were lost; then another session gets queue pairs of the first one.
func TestDecryptDamaged(t *testing.T) {
	for _, mode := range []protocol.Mode{protocol.ModeImm, protocol.ModeSendUC} {
		t.Run(string(mode), func(t *testing.T) {
			f, next := newFabric(t, seal.AES128GCM, 1), newFabric(t, seal.AES128GCM, 2)
			f.session(mode)
			next.psn = map[uint32]uint32{40: 0x300000, 41: 0x400000, 50: 0x500000, 51: 0x600000}
			next.session(mode)
			packets, want := slices.Clone(f.packets), slices.Clone(f.want)
			// The frame of 9000 bytes begins with a packet that no other one is like, and has nine.
			long := slices.IndexFunc(f.want, func(p []byte) bool { return len(p) > 1000 && whole(p) == 9000 })
			if long < 0 {
				t.Fatal("no long frame")
			}
			lost := long + 3
			// Sent again by the queue pair: all of it, then again.
			packets = slices.Insert(packets, lost, f.packets[long:lost]...)
			packets = slices.Insert(packets, len(packets), f.packets[len(f.packets)-1])
			packets, want = append(packets, next.packets...), append(want, next.want...)
			got, said := decrypt(t, keyLog(t, f, next), packets)
			equalPackets(t, got, want)
			if !strings.Contains(said, "4 packets were sent again") {
				t.Errorf("says %q", said)
			}

			// One packet of the long frame is missing: it stays as it is, and what follows is decrypted.
			packets = slices.Delete(slices.Clone(f.packets), lost, lost+1)
			want = slices.Delete(slices.Concat(f.want[:long], f.packets[long:long+9], f.want[long+9:]), lost, lost+1)
			got, _ = decrypt(t, keyLog(t, f), packets)
			equalPackets(t, got, want)
		})
	}
}

// whole returns the length of the message of whose packets this is the first.
func whole(p []byte) int {
	const bth = 14 + 20 + 8
	switch p[bth] &^ uc {
	case writeFirst:
		return int(binary.BigEndian.Uint32(p[bth+24:]))
	case sendFirst:
		return int(binary.BigEndian.Uint32(p[bth+24:])) // data size of a SendData
	}
	return 0
}

// TestDecryptResumed has the rest of a write sent again as a write of its own, as Soft-RoCE does.
func TestDecryptResumed(t *testing.T) {
	f := newFabric(t, seal.AES256GCM, 1)
	f.session(protocol.ModeImm)
	packets, want := slices.Clone(f.packets), slices.Clone(f.want)
	for i, p := range f.packets {
		const bth = 14 + 20 + 8
		if p[bth] != writeFirst+1 || f.packets[i-1][bth] != writeFirst {
			continue
		}
		again := func(p []byte) []byte {
			q := roce{opcode: writeFirst, qpn: uint32(p[bth+7]), psn: binary.BigEndian.Uint32(p[bth+8:]),
				address: 0x7f0000100000, payload: p[bth+12 : len(p)-4]}
			return q.bytes()
		}
		packets[i], want[i] = again(p), again(f.want[i])
	}
	got, _ := decrypt(t, keyLog(t, f), packets)
	equalPackets(t, got, want)
}

// TestDecryptAddresses decrypts packets with a VLAN tag, and of IPv6.
func TestDecryptAddresses(t *testing.T) {
	f := newFabric(t, seal.ChaCha20Poly1305, 1)
	f.session(protocol.ModeSend)
	tagged := func(p []byte) []byte { return slices.Insert(slices.Clone(p), 12, 0x81, 0, 0, 5) }
	six := func(p []byte) []byte {
		header := slices.Concat([]byte{0x60, 0, 0, 0}, p[14+20+4:14+20+6], []byte{17, 64}, make([]byte, 32))
		b := slices.Concat(p[:12], []byte{0x86, 0xdd}, header, p[14+20:])
		return b
	}
	for name, change := range map[string]func([]byte) []byte{"VLAN": tagged, "IPv6": six} {
		t.Run(name, func(t *testing.T) {
			var packets, want [][]byte
			for i := range f.packets {
				packets, want = append(packets, change(f.packets[i])), append(want, change(f.want[i]))
			}
			got, _ := decrypt(t, keyLog(t, f), packets)
			equalPackets(t, got, want)
		})
	}
}

// TestDecryptMistakes expects one line that names the file.
func TestDecryptMistakes(t *testing.T) {
	f := newFabric(t, seal.AES128GCM, 1)
	f.session(protocol.ModeImm)
	keys, capture := keyLog(t, f), pcap(f.packets)
	write := func(s string) string {
		path := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ng := slices.Clone(capture)
	copy(ng, "\x0a\x0d\x0d\x0a")
	infiniband := slices.Clone(capture)
	infiniband[20] = 247
	none, short := write(""), write("SPLITNIC_FRAMES x aes-128-gcm 00\n")
	for _, c := range []struct {
		name, keys string
		capture    []byte
		want       string
	}{
		{"no keys", none, capture, none + ": no SPLITNIC_FRAMES line"},
		{"missing", none + "x", capture, none + "x: No such file"},
		{"short secret", short, capture, short + ":1: not SPLITNIC_FRAMES"},
		{"pcap-ng", keys, ng, "editcap"},
		{"InfiniBand", keys, infiniband, "not a capture of an Ethernet device"},
		{"empty", keys, nil, "no capture file"},
		{"begins late", keys, pcap(f.packets[len(f.packets)-20:]), "the capture has to begin before the session"},
		{"another session", keyLog(t, newFabric(t, seal.AES128GCM, 9)), capture, "nothing of 1 session "},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, said, err := tryDecrypt(t, c.keys, c.capture)
			if err == nil || !strings.Contains(said, c.want) || strings.Count(said, "\n") != 1 {
				t.Errorf("%v: says %q, want %q", err, said, c.want)
			}
		})
	}
	// Whatever a capture has, the script does not fail.
	for cut := range 3000 {
		capture[24+cut] ^= byte(cut)
	}
	if _, said, _ := tryDecrypt(t, keys, capture); strings.Contains(said, "Traceback") {
		t.Error(said)
	}
}
