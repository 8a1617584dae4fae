package testenv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// Port is one queue of a TAP device or of a LAN interface.
type Port interface {
	FD() int
	ReadFrames(ops []vnet.ReadOp) int
	WriteFrames(ops []vnet.WriteOp) int
}

// ReadFrame reads one frame from a port.
func ReadFrame(p Port, slot []byte) ([]byte, error) {
	ops := [1]vnet.ReadOp{{Slot: slot}}
	p.ReadFrames(ops[:])
	return ops[0].Frame, ops[0].Err
}

// WriteFrame writes one frame to a port, in two parts if there is a rest.
func WriteFrame(p Port, head []byte, rest ...byte) error {
	ops := [1]vnet.WriteOp{{Head: head, Rest: rest}}
	p.WriteFrames(ops[:])
	return ops[0].Err
}

// PortFixture is a port and the network behind its device.
type PortFixture struct {
	Port  Port
	Here  net.HardwareAddr       // address of the port's user
	There net.HardwareAddr       // address of the peer behind the device
	Send  func(frames ...[]byte) // sends frames to the port
	Super bool                   // super-frames pass
	Close func() error           // closes the port
	Down  func()                 // sets the device down
	Gone  func()                 // deletes the device
	Slow  func(on bool)          // makes the device pass very few frames; nil if it then drops frames

	// Listen starts to receive the frames that the port writes.
	Listen func() *Listener
	far    *Listener
}

// etherProbe is the EtherType of probes, one for experiments.
const etherProbe = 0x88b5

// Probe returns frame number seq, of n bytes with its Ethernet header. Its content depends on seq
// and n. If n exceeds the MTU, it is a TCP super-frame.
func (r *PortFixture) Probe(toPort bool, seq uint32, n int) []byte {
	f := make([]byte, vnet.HdrLen+n)
	eth := f[vnet.HdrLen:]
	src := rand.NewChaCha8([32]byte{byte(seq), byte(seq >> 8), byte(n), byte(n >> 8)})
	_, _ = src.Read(eth[14:]) // never fails
	copy(eth, r.There)
	copy(eth[6:], r.Here)
	if toPort {
		copy(eth, r.Here)
		copy(eth[6:], r.There)
	}
	if n <= 1514 {
		binary.BigEndian.PutUint16(eth[12:], etherProbe)
		binary.BigEndian.PutUint32(eth[14:], seq)
		return f
	}
	(&vnet.Header{Flags: vnet.FlagNeedsCsum, GSOType: vnet.GSOTCPv4, HdrLen: 54, GSOSize: 1400, CsumStart: 34,
		CsumOffset: 16}).Encode(f)
	copy(eth[12:], []byte{8, 0, 0x45, 0, byte((n - 14) >> 8), byte(n - 14), byte(seq >> 8), byte(seq), 0x40, 0, 64, 6, 0,
		0, 10, 0, 0, 1, 10, 0, 0, 2})
	sum := uint32(0) // a bridge may check it
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(eth[i:]))
	}
	binary.BigEndian.PutUint16(eth[24:], ^uint16(sum+sum>>16))
	copy(eth[34:], []byte{0, 80, 0, 81, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0})
	return f
}

// probes returns probes of these sizes, with numbers from seq on.
func (r *PortFixture) probes(toPort bool, seq int, sizes ...int) [][]byte {
	frames := make([][]byte, len(sizes))
	for i, n := range sizes {
		frames[i] = r.Probe(toPort, uint32(seq+i), n)
	}
	return frames
}

// small returns n random sizes of frames from 60 bytes to that many more.
func small(random *rand.Rand, n, more int) []int {
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = 60 + random.IntN(more)
	}
	return sizes
}

// ours reports whether an Ethernet frame is a probe in that direction.
func (r *PortFixture) ours(frame []byte, toPort bool) bool {
	from := r.Here
	if toPort {
		from = r.There
	}
	eth := frame[vnet.HdrLen:]
	return bytes.Equal(eth[6:12], from) && (binary.BigEndian.Uint16(eth[12:]) == etherProbe ||
		bytes.Equal(eth[12:15], []byte{8, 0, 0x45}))
}

// Receive fails the test unless the next probes that arrive at the far end are frames.
func (r *PortFixture) Receive(t testing.TB, frames ...[]byte) {
	t.Helper()
	for i, want := range frames {
		got, _ := r.far.Next(func(f []byte) bool { return r.ours(f, false) })
		if !bytes.Equal(got[vnet.HdrLen:], want[vnet.HdrLen:]) {
			t.Fatalf("frame %d of %d arrived as another one, of %d bytes instead of %d: % x..., want % x...",
				i, len(frames), len(got), len(want), got[:40], want[:40])
		}
	}
}

// Slots returns n operations with slots of that size.
func Slots(n, size int) []vnet.ReadOp {
	ops := make([]vnet.ReadOp, n)
	for i := range ops {
		ops[i].Slot = make([]byte, size)
	}
	return ops
}

// Read reads by single and batched calls, chosen at random, until it has n frames or errors about
// frames. An error is nil in the result.
func (r *PortFixture) Read(t testing.TB, random *rand.Rand, ops []vnet.ReadOp, n int) (got [][]byte) {
	t.Helper()
	take := func(op *vnet.ReadOp) (dry bool) {
		switch {
		case errors.Is(op.Err, unix.EAGAIN):
			return true
		case op.Err == nil && !r.ours(op.Frame, true):
		case op.Err == nil:
			if &op.Frame[:cap(op.Frame)][cap(op.Frame)-1] != &op.Slot[:cap(op.Slot)][cap(op.Slot)-1] {
				t.Fatal("a frame lies outside its slot")
			}
			got = append(got, slices.Clone(op.Frame))
		case errors.Is(op.Err, vnet.ErrTooLong), errors.Is(op.Err, vnet.ErrInvalid):
			got = append(got, nil)
		default:
			t.Fatal(op.Err)
		}
		return false
	}
	Eventually(t, func() bool {
		for len(got) < n {
			if random.IntN(4) == 0 {
				ops[0].Frame, ops[0].Err = ReadFrame(r.Port, ops[0].Slot)
				if take(&ops[0]) {
					return false
				}
				continue
			}
			some := ops[:1+random.IntN(len(ops))]
			k := r.Port.ReadFrames(some)
			if k < 1 || k > len(some) {
				t.Fatalf("%d of %d operations filled", k, len(some))
			}
			for i := range some[:k] {
				if take(&some[i]) {
					if i != k-1 {
						t.Fatalf("EAGAIN at operation %d of %d", i, k)
					}
					return false
				}
			}
		}
		return true
	}, "%d frames", n)
	return got
}

// WriteOps returns operations for frames, each cut in two at random, or not.
func WriteOps(random *rand.Rand, frames ...[]byte) []vnet.WriteOp {
	ops := make([]vnet.WriteOp, len(frames))
	for i, f := range frames {
		f = slices.Clone(f) // a port may change the header
		cut := len(f)
		if random.IntN(2) == 0 {
			cut = vnet.MinFrame + random.IntN(len(f)-vnet.MinFrame+1)
		}
		ops[i] = vnet.WriteOp{Head: f[:cut], Rest: f[cut:], Err: errors.New("not done")}
	}
	return ops
}
