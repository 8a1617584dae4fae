package rx

import (
	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// openedBytes is the size of the memory for opened transfers. It is several times that of the
// largest element, and small enough to stay in a processor's cache.
const openedBytes = 256 << 10

// opening opens sealed transfers. What is delivered of them lies in memory that no device writes, so
// it is what was authentic. Only the receiver's goroutine uses it.
type opening struct {
	opener *seal.Opener // nil: transfers are not sealed
	out    *delivery    // where their frames go
	next   uint64       // number of the next transfer that arrives
	mem    []byte
	used   int // bytes of mem with frames that may not be written yet
}

func newOpening(opener *seal.Opener, out *delivery) opening {
	o := opening{opener: opener, out: out}
	if opener != nil {
		o.mem = make([]byte, openedBytes)
	}
	return o
}

// number returns the number of a transfer that has arrived by a write. Each must be asked for once,
// in the order of arrival.
func (o *opening) number() uint64 {
	o.next++
	return o.next - 1
}

// open returns the contents of a transfer. If transfers are sealed, they are valid until the frames
// in them are written. shared says that the peer, or who has its key, can still write to data.
func (o *opening) open(data []byte, number uint64, p *bufpool.Local, elem int, shared bool) ([]byte, error) {
	if o.opener == nil {
		return data, nil
	}
	if len(data) > len(o.mem)-o.used {
		if err := o.out.write(); err != nil {
			return nil, err
		}
	}
	if len(o.out.writes) == 0 {
		o.used = 0
	}
	opened, err := o.opener.Open(o.mem[o.used:], data, number, p.Ref, uint32(elem), shared)
	if err != nil {
		return nil, core.ChannelViolation(o.out.channel, err, "transfer %d, of %d bytes, to element %d of pool %d", number,
			len(data), elem, p.Ref)
	}
	o.used += len(data)
	o.out.count.RxOpened.Add(1)
	return opened, nil
}

// framesIn returns how many frames a transfer has that is not opened, according to its header. One
// that is sealed counts as one.
func (o *opening) framesIn(data []byte) int {
	if o.opener != nil {
		return 1
	}
	return o.out.framesIn(data)
}
