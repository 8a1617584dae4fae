//go:build cgo

package vhostuser_test

import (
	"path/filepath"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/verbs"
	"github.com/splitnic/splitnic/vhostuser"
)

// TestRDMATestpmd is TestTestpmd over RDMA devices, with each kind of ring.
func TestRDMATestpmd(t *testing.T) {
	names := testenv.NeedRDMA(t, 2)
	for name, options := range map[string]string{"split": "", "packed": ",packed_vq=1"} {
		t.Run(name, func(t *testing.T) {
			var devices [2]fabric.Device
			for i := range devices {
				c, err := verbs.Open(names[i])
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := c.Close(); err != nil {
						t.Error(err)
					}
				})
				devices[i] = c
			}
			a := vhostuser.Address{Path: filepath.Join(t.TempDir(), "s")}
			d := open(t, a, 1)
			t.Cleanup(func() { d.Close() })
			wires := layerOn(t, devices, portsOf(d))
			for range 2 {
				stop := testpmd(t, a, options)
				waitUp(t, d, true)
				echo(t, wires[0], 500)
				stop()
				waitUp(t, d, false)
			}
			if s := d.Status(); s.ReadFrames < 1000 || s.LastError != "" || s.Connections != 2 {
				t.Errorf("%+v", s)
			}
		})
	}
}
