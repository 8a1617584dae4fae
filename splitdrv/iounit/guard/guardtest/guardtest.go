// Package guardtest has a queue in memory, frames and hosts, for tests of what passes between a host
// and the LAN.
package guardtest

import (
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/vnet"
)

// Queue is a LAN queue of frames in memory.
type Queue struct {
	In    [][]byte // frames to read
	Out   [][]byte // frames written
	Err   error    // result of writes
	Tweak func()   // called during a write, before the frame is copied
	Quiet bool     // written frames are not kept
	Room  int      // number of frames that one batch of writes takes; 0 for any number
	Calls int      // number of batches
}

var _ lan.Queue = (*Queue)(nil)

// FD implements lan.Queue.
func (q *Queue) FD() int { return 3 }

// WriteFD implements lan.Queue.
func (q *Queue) WriteFD() int { return 4 }

// Close implements lan.Queue.
func (q *Queue) Close() error { return nil }

func (q *Queue) write(head, rest []byte) error {
	if q.Tweak != nil {
		q.Tweak()
	}
	if q.Err != nil {
		return q.Err
	}
	if !q.Quiet {
		q.Out = append(q.Out, slices.Concat(head, rest))
	}
	return nil
}

// ReadFrames implements lan.Queue.
func (q *Queue) ReadFrames(ops []vnet.ReadOp) int {
	q.Calls++
	for i := range ops {
		if ops[i].Err = nil; len(q.In) == 0 {
			ops[i].Frame, ops[i].Err = nil, unix.EAGAIN
			return i + 1
		}
		ops[i].Frame = ops[i].Slot[:copy(ops[i].Slot, q.In[0])]
		q.In = q.In[1:]
	}
	return len(ops)
}

// WriteFrames implements lan.Queue.
func (q *Queue) WriteFrames(ops []vnet.WriteOp) int {
	q.Calls++
	for i := range ops {
		if q.Room > 0 && i == q.Room {
			ops[i].Err = unix.EAGAIN
			return i
		}
		if ops[i].Err = q.write(ops[i].Head, ops[i].Rest); errors.Is(ops[i].Err, unix.EAGAIN) {
			return i
		}
	}
	return len(ops)
}

// Addresses in tests.
var (
	Own     = protocol.MAC{2, 0, 0, 0, 0, 1}
	Other   = protocol.MAC{2, 0, 0, 0, 0, 2} // another host's
	Card    = protocol.MAC{2, 0, 0, 0, 0, 9} // the network card's
	Machine = protocol.MAC{2, 7, 0, 0, 0, 1} // behind a host
	Wanted  = protocol.Group{0x33, 0x33, 0, 0, 0, 1}
)

// Frame returns a frame with tags of the given VLANs.
func Frame(dst [6]byte, src protocol.MAC, n int, vlans ...uint16) []byte {
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

// HostWith returns the policy of a host that may use these VLANs and addresses, or any address if
// there is none in the list.
func HostWith(vlans string, macs ...string) *policy.Host {
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

// EtherFrame returns a frame from the host's own address. rest is hexadecimal: tags, EtherType and
// payload.
func EtherFrame(dst [6]byte, rest string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(rest, " ", ""))
	if err != nil {
		panic(err)
	}
	f := append(make([]byte, vnet.HdrLen), dst[:]...)
	f = append(append(f, Own[:]...), b...)
	return append(f, make([]byte, max(0, vnet.HdrLen+60-len(f)))...)
}

// SuperFrame returns a TCP super-frame with segments of this size.
func SuperFrame(payload, size int) []byte {
	f := EtherFrame(Machine, "0800 4500 0000 0000 0000 4006 0000 c0000201 c0000202")
	f = append(f[:vnet.HdrLen+14+20], make([]byte, 20+payload)...)
	f[vnet.HdrLen+14+20+12] = 5 << 4
	h := vnet.Header{Flags: vnet.FlagNeedsCsum, GSOType: vnet.GSOTCPv4, GSOSize: uint16(size), CsumStart: 34,
		CsumOffset: 16}
	h.Encode(f)
	return f
}
