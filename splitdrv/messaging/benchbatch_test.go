package messaging_test

import (
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// ReadFrames implements messaging.Port.
func (p *benchPort) ReadFrames(ops []vnet.ReadOp) int {
	for i := range ops {
		ops[i].Frame, ops[i].Err = p.ReadFrame(ops[i].Slot)
		if ops[i].Err != nil {
			return i + 1
		}
	}
	return len(ops)
}

// WriteFrames implements messaging.Port.
func (p *benchPort) WriteFrames(ops []vnet.WriteOp) int {
	for i := range ops {
		ops[i].Err = nil
		if len(ops[i].Head)+len(ops[i].Rest) != p.size {
			ops[i].Err = unix.EINVAL
		} else if p.await.Add(-1) == 0 {
			close(p.done)
		}
	}
	return len(ops)
}

var _ messaging.Port = (*benchPort)(nil)
