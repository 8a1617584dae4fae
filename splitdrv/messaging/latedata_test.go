package messaging_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// TestLateData expects that a device that makes the data of writes visible late lends no pool with
// elements about which a message would have to tell, because immediate data cannot.
func TestLateData(t *testing.T) {
	n := fabrictest.New(fabrictest.WithAdapter(fabrictest.Adapter{LateWrites: true}))
	fabrictest.NoLeaks(t, n)
	dev := watchedDevice(t, n, "a")
	t.Cleanup(func() { _ = dev.Close() })
	var many []messaging.PoolConfig
	for range 40 {
		many = append(many, messaging.PoolConfig{ElementSize: 2048, Elements: 1})
	}
	for name, cfg := range map[string]messaging.Config{
		"length":        {MTU: protocol.MaxMTU},
		"elements":      {Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: protocol.MaxImmElements + 1}}},
		"references":    {Queues: 8, Pools: many},
		"mode indicate": {Mode: protocol.ModeIndicate},
	} {
		cfg.Device = dev
		_, err := messaging.New(cfg)
		if !errors.Is(err, device.ErrTransport) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		testenv.Explained(t, err.Error())
	}
}

// TestLateDataFrames sends frames of the sizes around the largest of which immediate data can tell, to
// a device that makes the data of writes visible late and to one that does not. A frame arrives
// unchanged or, where no pool can be lent for it, not at all.
func TestLateDataFrames(t *testing.T) {
	for _, late := range []bool{true, false} {
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			n := fabrictest.New(fabrictest.WithAdapter(fabrictest.Adapter{LateWrites: late}))
			fabrictest.NoLeaks(t, n)
			sides := onDevices(t, n, patient(messaging.Config{}))
			a, b, ctx := sides[0], sides[1], whileUp(t, sides)
			fits := []int{protocol.MaxImmLength - 1, protocol.MaxImmLength}
			if err := stream(ctx, a.wires[0], b.wires[0], fits, 1500); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, vnet.MaxFrame+1)
			receive := func() []byte {
				t.Helper()
				got, err := b.wires[0].Receive(ctx, buf)
				if err != nil {
					t.Fatal(err)
				}
				return got
			}
			dropped := uint64(0)
			for _, size := range []int{protocol.MaxImmLength + 1, vnet.MaxFrame} {
				for i, arrived := uint64(0), false; late && i < 5 || !late && !arrived; i++ {
					long, short := frame(i, size, 1500), frame(i, 60, 1500)
					if err := errors.Join(a.wires[0].Send(ctx, long), a.wires[0].Send(ctx, short)); err != nil {
						t.Fatal(err)
					}
					got := receive()
					if arrived = len(got) == size; arrived {
						if !bytes.Equal(got, long) {
							t.Fatalf("frame %d of %d bytes has arrived changed", i, size)
						}
						got = receive()
					} else {
						dropped++
					}
					if !bytes.Equal(got, short) {
						t.Fatalf("%d bytes have arrived instead of frame %d of %d", len(got), i, len(short))
					}
				}
			}
			if n := a.conn.Stats().Channels[0].TxTooLong; n != dropped {
				t.Errorf("%d frames dropped, %d counted", dropped, n)
			}
		})
	}
}
