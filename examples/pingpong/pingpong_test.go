package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/splitnic/splitnic/fabric"
)

func TestAddressText(t *testing.T) {
	a := fabric.Address{LID: 0x1f, QPN: 0x12ab, PSN: 0xfedcba, GID: [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 1}}
	const text = "001f:0012ab:fedcba:00000000000000000000ffff0a000001\x00"
	if got := formatAddress(a); string(got) != text {
		t.Errorf("formatted %q, want %q", got, text)
	}
	if got, err := parseAddress([]byte(text)); err != nil || got != a {
		t.Errorf("parsed %+v, %v", got, err)
	}
}

func TestParseAddressRefuses(t *testing.T) {
	for _, msg := range []string{
		"",
		"001f:0012ab:fedcba:00000000000000000000ffff0a0000010",   // no NUL
		"001f:0012ab:fedcba:00000000000000000000ffff0a00000\x00", // short
		"001f:0012ab:fedcba:00000000000000000000ffff0a00000g\x00",
		"00gf:0012ab:fedcba:00000000000000000000ffff0a000001\x00",
		"001f-0012ab:fedcba:00000000000000000000ffff0a000001\x00",
	} {
		if a, err := parseAddress([]byte(msg)); err == nil {
			t.Errorf("%q parsed as %+v", msg, a)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	f.Add(formatAddress(fabric.Address{LID: 1, QPN: 2, PSN: 3, GID: [16]byte{15: 1}}))
	f.Add([]byte("    :      :      :                                \x00"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		a, err := parseAddress(msg)
		if err != nil {
			return
		}
		b, err := parseAddress(formatAddress(a))
		if err != nil || a != b {
			t.Errorf("%q is %+v, and again %+v, %v", msg, a, b, err)
		}
	})
}

// errRefused ends a session in a test before it needs a device.
var errRefused = errors.New("refused")

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errRefused }

func TestReadAddress(t *testing.T) {
	if _, err := readAddress(failingReader{}); !errors.Is(err, errRefused) {
		t.Errorf("error %v", err)
	}
	if _, err := readAddress(bytes.NewReader(make([]byte, 3))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v", err)
	}
	// The address arrives in pieces, as TCP may deliver it.
	c, s := net.Pipe()
	want := fabric.Address{QPN: 5, GID: [16]byte{1}}
	go func() {
		for _, b := range formatAddress(want) {
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
		}
	}()
	if got, err := readAddress(s); err != nil || got != want {
		t.Errorf("read %+v, %v", got, err)
	}
}

func TestOptions(t *testing.T) {
	o, err := parseOptions([]string{"-uc", "-d", "rxe0", "-n", "5", "-e", "peer"})
	if err != nil || o.transport != fabric.UC || o.device != "rxe0" || o.iters != 5 || !o.events || o.host != "peer" ||
		o.tcpPort != 18515 || o.size != 4096 || o.mtu != 1024 || o.gidIndex != -1 {
		t.Errorf("options %+v, %v", o, err)
	}
	for _, args := range [][]string{{"a", "b"}, {"-n", "0"}, {"-s", "-1"}, {"-r", "0"}} {
		if _, err := parseOptions(args); err == nil {
			t.Errorf("%q accepted", args)
		}
	}
}
