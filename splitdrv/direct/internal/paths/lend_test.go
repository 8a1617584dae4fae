package paths

import (
	"testing"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// lendingDevice lends each frame except its first lentHead bytes, and counts the calls of its
// methods.
type lendingDevice struct {
	*device
	fetched, returned int
	recall            func()
}

const lentHead = 64

func (d *lendingDevice) Memory() (*vnet.Memory, <-chan struct{}) { return nil, nil }
func (d *lendingDevice) Registered(int64)                        {}
func (d *lendingDevice) NotRegistered(error)                     {}
func (d *lendingDevice) OnRecall(fn func())                      { d.recall = fn }
func (d *lendingDevice) Return(loans []vnet.Loan)                { d.returned += len(loans) }
func (d *lendingDevice) Fetch(*vnet.ReadOp, *vnet.Lent)          { d.fetched++ }

func (d *lendingDevice) ReadLent(ops []vnet.ReadOp, lent []vnet.Lent, keys *vnet.Keys) int {
	n := d.ReadFrames(ops)
	for i := range ops[:n] {
		if ops[i].Err == nil {
			lent[i].Size = len(ops[i].Frame)
			lent[i].Pieces = []vnet.Piece{{Mem: ops[i].Frame[lentHead:], LKey: keys.Keys[0].LKey}}
			ops[i].Frame = ops[i].Frame[:lentHead]
		}
	}
	return n
}

// TestLending expects a netdevice to lend its frames to the path through the I/O unit only while
// there is no direct path: frames for other readers are passed on as a whole.
func TestLending(t *testing.T) {
	plain, _ := newSplit(t, 1, Config{})
	if _, lends := plain.Uplink()[0].(messaging.ZeroCopyPort); lends {
		t.Error("a netdevice lends that does not")
	}
	d := &lendingDevice{device: newDevice(t)}
	s, err := New([]messaging.Port{d}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	uplink := s.Uplink()[0].(messaging.ZeroCopyPort)
	read := func(want int) {
		t.Helper()
		d.send(frame(third, own, 200), frame(third, own, 300))
		for _, size := range []int{200, 300} {
			ops := []vnet.ReadOp{{Slot: make([]byte, vnet.MaxFrame+1)}}
			lent := make([]vnet.Lent, 1)
			n := uplink.ReadLent(ops, lent, &vnet.Keys{Keys: []vnet.Key{{LKey: 9, Known: true}}})
			if size += vnet.HdrLen; n != 1 || ops[0].Err != nil {
				t.Fatalf("%d frames are read: %v", n, ops[0].Err)
			}
			if len(lent[0].Pieces) != want {
				t.Errorf("%d pieces of a frame are lent, and should %d", len(lent[0].Pieces), want)
			} else if want > 0 && lent[0].Size != size {
				t.Errorf("a frame of %d bytes is lent as %d", size, lent[0].Size)
			}
		}
	}
	read(1)
	p, err := s.Open(Peer{MACs: []protocol.MAC{peer}, Own: []protocol.MAC{own}, MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	read(0)
	p.Close(nil)
	read(1)
	uplink.Fetch(nil, nil)
	uplink.Return(make([]vnet.Loan, 2))
	uplink.OnRecall(func() {})
	if d.fetched != 1 || d.returned != 2 || d.recall == nil {
		t.Errorf("%+v", d)
	}
}
