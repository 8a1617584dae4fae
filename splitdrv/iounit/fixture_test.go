package iounit

import (
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/vnet"
)

// queue is a LAN queue of frames in memory.
type queue struct {
	in    [][]byte // frames to read
	out   [][]byte // frames written
	err   error    // result of writes
	tweak func()   // called during a write, before the frame is copied
	quiet bool     // written frames are not kept
	room  int      // number of frames that one batch of writes takes; 0 for any number
	calls int      // number of batches
}

func (q *queue) FD() int      { return 3 }
func (q *queue) WriteFD() int { return 4 }
func (q *queue) Close() error { return nil }

func (q *queue) ReadFrame(slot []byte) ([]byte, error) {
	if len(q.in) == 0 {
		return nil, unix.EAGAIN
	}
	n := copy(slot, q.in[0])
	q.in = q.in[1:]
	return slot[:n], nil
}

func (q *queue) WriteFrame(frame []byte) error { return q.WriteParts(frame, nil) }

func (q *queue) WriteParts(head, rest []byte) error {
	if q.tweak != nil {
		q.tweak()
	}
	if q.err != nil {
		return q.err
	}
	if !q.quiet {
		q.out = append(q.out, slices.Concat(head, rest))
	}
	return nil
}

func (q *queue) ReadFrames(ops []vnet.ReadOp) int {
	q.calls++
	for i := range ops {
		ops[i].Frame, ops[i].Err = q.ReadFrame(ops[i].Slot)
		if errors.Is(ops[i].Err, unix.EAGAIN) {
			return i + 1
		}
	}
	return len(ops)
}

func (q *queue) WriteFrames(ops []vnet.WriteOp) int {
	q.calls++
	for i := range ops {
		if q.room > 0 && i == q.room {
			ops[i].Err = unix.EAGAIN
			return i
		}
		if ops[i].Err = q.WriteParts(ops[i].Head, ops[i].Rest); errors.Is(ops[i].Err, unix.EAGAIN) {
			return i
		}
	}
	return len(ops)
}

var (
	own     = protocol.MAC{2, 0, 0, 0, 0, 1}
	other   = protocol.MAC{2, 0, 0, 0, 0, 2} // another host's
	card    = protocol.MAC{2, 0, 0, 0, 0, 9}
	machine = protocol.MAC{2, 7, 0, 0, 0, 1} // behind a host
	wanted  = protocol.Group{0x33, 0x33, 0, 0, 0, 1}
)

// frame returns a frame with tags of the given VLANs.
func frame(dst [6]byte, src protocol.MAC, n int, vlans ...uint16) []byte {
	f := make([]byte, vnet.HdrLen, vnet.HdrLen+n)
	f = append(append(f, dst[:]...), src[:]...)
	for _, v := range vlans {
		f = append(f, 0x81, 0, byte(v>>8), byte(v))
	}
	f = append(f, 0x88, 0xb5)
	for len(f) < vnet.HdrLen+n {
		f = append(f, byte(len(f)))
	}
	return f
}

// hostWith returns the policy of a host that may use these VLANs and addresses, or any address if
// there is none in the list.
func hostWith(vlans string, macs ...string) *policy.Host {
	h := *policy.Default().For("", "")
	h.VLANs, _ = protocol.ParseVLANs(vlans)
	h.AnyMAC, h.OwnMAC = len(macs) == 0, len(macs) == 0
	for _, m := range macs {
		p, err := policy.ParsePattern(m)
		if err != nil {
			panic(err)
		}
		h.MACs = append(h.MACs, p)
	}
	return &h
}

// etherFrame returns a frame from the host's own address. rest is hexadecimal: tags, EtherType and
// payload.
func etherFrame(dst [6]byte, rest string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(rest, " ", ""))
	if err != nil {
		panic(err)
	}
	f := append(make([]byte, vnet.HdrLen), dst[:]...)
	f = append(append(f, own[:]...), b...)
	return append(f, make([]byte, max(0, vnet.HdrLen+60-len(f)))...)
}

// superFrame returns a TCP super-frame with segments of this size.
func superFrame(payload, size int) []byte {
	f := etherFrame(machine, "0800 4500 0000 0000 0000 4006 0000 c0000201 c0000202")
	f = append(f[:vnet.HdrLen+14+20], make([]byte, 20+payload)...)
	f[vnet.HdrLen+14+20+12] = 5 << 4
	h := vnet.Header{Flags: vnet.FlagNeedsCsum, GSOType: vnet.GSOTCPv4, GSOSize: uint16(size), CsumStart: 34,
		CsumOffset: 16}
	h.Encode(f)
	return f
}
