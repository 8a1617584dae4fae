package e2e

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
)

// TestRDMADissector captures packets on the fabric's cable and runs tshark on them, with the
// dissector of contrib/wireshark. The dissector has to find the messages of the mode and the frames
// in them, and must not report anything as malformed.
func TestRDMADissector(t *testing.T) {
	testenv.NeedTools(t, "tshark")
	inEachMode(t, "macvtap", func(t *testing.T, r *fixture) { testDissector(t, r, nil) })
}

// TestRDMADecrypt expects the same of encrypted sessions that contrib/wireshark/decrypt.py has decrypted
// with the key log.
func TestRDMADecrypt(t *testing.T) {
	testenv.NeedTools(t, "tshark", "python3")
	needFabric(t)
	r := makeFixture(t, "macvtap", "--encrypt", "required")
	r.logKeys()
	r.startUnit()
	r.inEachMode(t, func(t *testing.T, r *fixture) {
		testDissector(t, r, func(capture string) string {
			decrypted := filepath.Join(t.TempDir(), "decrypted.pcap")
			out, err := exec.CommandContext(t.Context(), "../../contrib/wireshark/decrypt.py",
				filepath.Join(r.dir, "keys.log"), capture, decrypted).CombinedOutput()
			t.Logf("%s", out)
			if err != nil || strings.Count(string(out), " decrypted, 0 not\n") != strings.Count(string(out), " not\n") {
				t.Errorf("decrypt.py: %v", err)
			}
			return decrypted
		})
	})
}

// testDissector dissects the capture of a session, or what decrypt returns for it.
func testDissector(t *testing.T, r *fixture, decrypt func(capture string) string) {
	var packets [][]byte
	c := startCapture(t, fabricNS, fabricPort, func(c captured) {
		if _, _, _, ok := roce(c.frame); ok {
			packets = append(packets, slices.Clone(c.frame))
		}
	})
	h := r.host(t)
	const pings = 5
	ping(t, h.ns, addr(0), pings, 1000)
	c.close()

	capture := filepath.Join(t.TempDir(), "fabric.pcap")
	if err := os.WriteFile(capture, pcap(packets), 0o600); err != nil {
		t.Fatal(err)
	}
	if decrypt != nil {
		capture = decrypt(capture)
	}
	cmd := exec.CommandContext(t.Context(), "tshark", "-n", "-r", capture, "-X",
		"lua_script:../../contrib/wireshark/splitnic.lua",
		"-Y", "splitnic", "-T", "fields", "-E", "occurrence=a", "-e", "splitnic.function", "-e", "splitnic.imm", "-e",
		"splitnic.malformed", "-e", "icmp.type")
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v\n%s", err, stderr.String())
	}
	functions := map[string]int{}
	immediate, icmp := 0, 0
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		functions[f[0]]++
		if f[1] != "" {
			immediate++
		}
		if f[2] != "" {
			t.Errorf("taken for malformed: %q", line)
		}
		if f[3] == "0" || f[3] == "8" {
			icmp++
		}
	}
	t.Logf("of %d packets, by function: %v, %d with immediate data, %d with ICMP", len(packets), functions, immediate,
		icmp)
	atLeast := func(what string, got, want int) {
		if got < want {
			t.Errorf("%d %s, want %d at least", got, what, want)
		}
	}
	atLeast("BufferRecvPools", functions["1"], 2)
	atLeast("CfgUtilRequests", functions["8"], 1)
	atLeast("CfgUtilReplies", functions["9"], 1)
	switch r.mode {
	case "imm":
		atLeast("writes with immediate data", immediate, 2*pings)
	case "indicate":
		atLeast("BufferRDMAIndicates", functions["7"], 2)
	default:
		atLeast("SendDatas", functions["6"], 2*pings)
	}
	if r.mode != "indicate" {
		atLeast("echo requests and replies", icmp, 2*pings)
	}
}

// pcap returns a capture file (LINKTYPE_ETHERNET) of the packets, with time stamps one second
// apart.
func pcap(packets [][]byte) []byte {
	const magic, snapLen, ethernet = 0xa1b2c3d4, 1 << 18, 1
	b := binary.LittleEndian.AppendUint32(nil, magic)
	b = append(b, 2, 0, 4, 0) // version
	b = append(b, make([]byte, 8)...)
	b = binary.LittleEndian.AppendUint32(b, snapLen)
	b = binary.LittleEndian.AppendUint32(b, ethernet)
	for i, p := range packets {
		b = binary.LittleEndian.AppendUint32(b, uint32(i))
		b = binary.LittleEndian.AppendUint32(b, 0)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	return b
}
