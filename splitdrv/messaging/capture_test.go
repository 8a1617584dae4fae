package messaging_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// TestCapturedFrames captures at both endpoints of a session, in each mode. The capture must
// have all frames in order, both single frames and those of packs, and an answer after the
// frame that it answers.
func TestCapturedFrames(t *testing.T) {
	for _, mode := range protocol.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			var point capture.Point
			made := 0
			cfg := patient(messaging.Config{Mode: mode, Capture: func(queue int) *capture.Path {
				made++
				return point.Path(fmt.Sprintf("%c queue %d", 'a'+(made-1)/2, queue), "")
			}})
			_, a, b := startedPair(t, cfg, newRawPort)
			c, err := point.Start(capture.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.End()
			buf := make([]byte, 1<<16)
			cross := func(from, to int, frames ...[]byte) {
				t.Helper()
				for _, f := range frames {
					if _, err := unix.Write(from, f); err != nil {
						t.Fatal(err)
					}
				}
				for _, f := range frames {
					if n, err := unix.Read(to, buf); err != nil || !bytes.Equal(buf[:n], f) {
						t.Fatal(n, err)
					}
				}
			}
			var want []string
			for i := range byte(20) {
				ask, answer := frame(1, 100+int(i), 1500), frame(2, 60000+int(i), 1500)
				cross(a, b, ask)
				cross(b, a, answer)
				want = append(want, fmt.Sprintf("a queue 0 2 %d", len(ask)), fmt.Sprintf("b queue 0 1 %d", len(ask)),
					fmt.Sprintf("b queue 0 2 %d", len(answer)), fmt.Sprintf("a queue 0 1 %d", len(answer)))
			}
			var small [][]byte
			for i := range 15 {
				small = append(small, frame(3, 80+i, 1500))
			}
			cross(a, b, small...)
			c.End()
			var got []string
			sent, came := 0, 0
			var file bytes.Buffer
			if err := c.Copy(t.Context(), &file, "", ""); err != nil {
				t.Fatal(err)
			}
			r, err := pcapgo.NewNgReader(&file, pcapgo.NgReaderOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for {
				data, ci, opts, err := r.ReadPacketDataWithOptions()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				n, direction := vnet.HdrLen+ci.Length, opts.Flags.Direction
				if len(got) < len(want) {
					path, err := r.Interface(ci.InterfaceIndex)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, fmt.Sprintf("%s %d %d", path.Name, direction, n))
					continue
				}
				next := &sent
				if direction == pcapgo.NgEpbFlagDirectionInbound {
					next = &came
				}
				if n != len(small[*next]) || !bytes.Equal(data, small[*next][vnet.HdrLen:]) {
					t.Errorf("direction %d: frame %d has %d bytes, want %d", direction, *next, n, len(small[*next]))
				}
				*next++
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("captured %q, want %q", got, want)
			}
			if sent != len(small) || came != len(small) {
				t.Errorf("of %d frames %d were captured when they went, %d when they came", len(small), sent, came)
			}
		})
	}
}
