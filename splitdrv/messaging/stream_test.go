package messaging_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/vnet"
	"github.com/splitnic/splitnic/vnet/frametest"
)

// deadline returns a context that is canceled after a minute in which no frame of a stream
// arrives. So it does not depend on how many frames a machine handles in a minute.
func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	late := time.AfterFunc(testenv.Patience, func() { cancel(errors.New("nothing has arrived for a minute")) })
	t.Cleanup(func() {
		late.Stop()
		cancel(nil)
	})
	return context.WithValue(ctx, lateKey{}, late)
}

// lateKey is the key of the timer in a context from deadline.
type lateKey struct{}

// progress restarts the minute of a context from deadline.
func progress(ctx context.Context) {
	if late, ok := ctx.Value(lateKey{}).(*time.Timer); ok {
		late.Reset(testenv.Patience)
	}
}

// frame returns frame number seq of a stream, with n bytes. Its content depends on both. If it
// is longer than the MTU, it is a super-frame.
func frame(seq uint64, n int, mtu int) []byte {
	f := make([]byte, n)
	frametest.Fill(f[min(vnet.HdrLen+vnet.EthLen, n):], seq^uint64(n)<<32)
	eth := f[vnet.HdrLen:]
	copy(eth, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00})
	if len(eth) > mtu+vnet.EthLen {
		h := vnet.Header{
			Flags: vnet.FlagNeedsCsum, GSOType: vnet.GSOTCPv4, HdrLen: 54, GSOSize: uint16(mtu - 40),
			CsumStart: 34, CsumOffset: 16,
		}
		h.Encode(f)
		eth[14], eth[14+9] = 0x45, 6
		eth[34+12] = 5 << 4
	}
	if n >= vnet.HdrLen+54+12 {
		binary.BigEndian.PutUint64(f[vnet.HdrLen+54:], seq)
		binary.BigEndian.PutUint32(f[vnet.HdrLen+62:], 0)
		binary.BigEndian.PutUint32(f[vnet.HdrLen+62:], crc32.ChecksumIEEE(f))
	}
	return f
}

// stream sends frames of the given sizes into one wire, and expects them unchanged and in
// order at the other.
func stream(ctx context.Context, from, to *porttest.Wire, sizes []int, mtu int) error {
	sent := sendAll(ctx, from, sizes, mtu)
	return errors.Join(receiveAll(ctx, to, sizes, mtu), <-sent)
}

// streamBothWays begins a stream of frames in each direction between the ports of each queue.
func streamBothWays(ctx context.Context, t *testing.T, a, b *endpoint, frames int) *sync.WaitGroup {
	var wg sync.WaitGroup
	for i := range a.wires {
		for j, dir := range [][2]*endpoint{{a, b}, {b, a}} {
			wg.Go(func() {
				if err := stream(ctx, dir[0].wires[i], dir[1].wires[i], randomSizes(uint64(i*2+j), frames), 1500); err != nil {
					t.Errorf("queue %d, %s to %s: %v", i, dir[0].name, dir[1].name, err)
				}
			})
		}
	}
	return &wg
}

// sendAll sends the frames of a stream in the background. The channel receives the result.
func sendAll(ctx context.Context, from *porttest.Wire, sizes []int, mtu int) <-chan error {
	errs := make(chan error, 1)
	go func() {
		for i, n := range sizes {
			if err := from.Send(ctx, frame(uint64(i), n, mtu)); err != nil {
				errs <- fmt.Errorf("send frame %d: %w", i, err)
				return
			}
		}
		errs <- nil
	}()
	return errs
}

// receiveAll expects the frames of a stream, unchanged and in order.
func receiveAll(ctx context.Context, to *porttest.Wire, sizes []int, mtu int) error {
	buf := make([]byte, vnet.MaxFrame+1)
	for i, n := range sizes {
		got, err := to.Receive(ctx, buf)
		if err != nil {
			return fmt.Errorf("receive frame %d of %d: %w", i, len(sizes), err)
		}
		if !bytes.Equal(got, frame(uint64(i), n, mtu)) {
			return fmt.Errorf("frame %d: %d bytes arrived, differing from the %d sent", i, len(got), n)
		}
		progress(ctx)
	}
	return nil
}

func randomSizes(seed uint64, n int) []int {
	r := rand.New(rand.NewPCG(seed, 1))
	sizes := make([]int, n)
	for i := range sizes {
		switch r.IntN(3) {
		case 0:
			sizes[i] = vnet.MinFrame + r.IntN(200)
		case 1:
			sizes[i] = vnet.MinFrame + r.IntN(1500)
		case 2:
			sizes[i] = 2000 + r.IntN(protocol.MaxImmLength-2000+1)
		}
	}
	return sizes
}
