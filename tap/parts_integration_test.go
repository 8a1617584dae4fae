package tap_test

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// TestNetnsParts writes frames in two parts, at different places in memory, to devices with and
// without virtio_net_hdr.
func TestNetnsParts(t *testing.T) {
	testenv.NeedTUN(t)
	for name, open := range map[string]func(tap.Config) (*tap.Device, error){"with header": tap.Open,
		"plain": openPlain} {
		t.Run(name, func(t *testing.T) {
			ns := testenv.NetNS(t)
			testenv.DisableIPv6(t, ns)
			d, err := open(tap.Config{Name: "sn0", NetNS: ns, Queues: 1})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Close() })
			if err := errors.Join(d.Up(), d.SetCarrier(true)); err != nil {
				t.Fatal(err)
			}
			q := d.Queues()[0]
			l := testenv.ListenRaw(t, ns, "sn0")
			f := make([]byte, vnet.HdrLen+500)
			for i := range f[vnet.HdrLen:] {
				f[vnet.HdrLen+i] = byte(i)
			}
			copy(f[vnet.HdrLen:], []byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 0x88, 0xb5})
			for _, n := range []int{vnet.MinFrame, 100, len(f)} {
				if err := q.WriteParts(slices.Clone(f[:n]), f[n:]); err != nil {
					t.Fatal(err)
				}
				got, _ := l.Next(func(f []byte) bool { return bytes.Equal(f[vnet.HdrLen+12:vnet.HdrLen+14], []byte{0x88, 0xb5}) })
				if !bytes.Equal(got[vnet.HdrLen:], f[vnet.HdrLen:]) {
					t.Errorf("cut at %d, %d bytes arrived, differing from the %d sent", n, len(got), len(f))
				}
			}
			if q.WriteFD() != q.FD() {
				t.Errorf("descriptors %d and %d", q.FD(), q.WriteFD())
			}
			if err := q.WriteParts(f[:vnet.MinFrame-1], f); !errors.Is(err, unix.EINVAL) {
				t.Errorf("a head that is too short: %v", err)
			}
			f[0] = vnet.FlagNeedsCsum
			if err := q.WriteParts(f[:100], f[100:]); name == "plain" && !errors.Is(err, unix.EINVAL) {
				t.Errorf("a header that asks for something: %v", err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			if err := q.WriteParts(f[:100], f[100:]); name == "with header" && !errors.Is(err, net.ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		})
	}
}
