package rx

import (
	"errors"
	"testing"
	"time"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core/coretest"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
	"github.com/splitnic/splitnic/vnet"
)

// TestNeedlessIndication has the peer indicate a transfer by a message. In mode imm it may do so only where
// immediate data cannot name the element, because the data may become visible later than the message.
func TestNeedlessIndication(t *testing.T) {
	const size = vnet.HdrLen + vnet.MinFrame
	for _, c := range []struct {
		name     string
		mode     protocol.Mode
		pool     pools.Config
		needless bool
	}{
		{"immediate data names each element", protocol.ModeImm,
			pools.Config{ElementSize: protocol.MaxImmElementSize, Elements: 2}, true},
		{"elements too large", protocol.ModeImm,
			pools.Config{ElementSize: protocol.MaxImmElementSize + 1, Elements: 2}, false},
		{"the most elements", protocol.ModeImm, pools.Config{ElementSize: 128, Elements: protocol.MaxImmElements}, true},
		{"an element more", protocol.ModeImm, pools.Config{ElementSize: 128, Elements: protocol.MaxImmElements + 1}, false},
		{"no immediate data", protocol.ModeIndicate, pools.Config{ElementSize: 128, Elements: 2}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := coretest.New(t, c.mode)
			s.MTU.Store(1500)
			m := pools.New(s, pools.Options{Channels: 1, Idle: time.Minute}, nil, nil)
			shared, err := m.AddChannel(nil, 1, pools.SlotSize)
			if err != nil {
				t.Fatal(err)
			}
			r := New(s, Options{Receives: 80}, coretest.Channel(t, s, 1, 80, fabric.QPConfig{}), nil, shared, nil, m)
			r.ch.QP, r.out.port = bottomlessQP{r.ch.QP}, &sink{}
			lent, err := m.First(1, c.pool)
			if err == nil {
				err = r.Adopt(lent)
			}
			if err != nil {
				t.Fatal(err)
			}
			err = r.read(&core.RxEvent{Do: bufpool.Consume, Elem: 1, Length: size})
			if errors.Is(err, core.ErrNeedless) != c.needless || err != nil && !c.needless {
				t.Errorf("%v", err)
			}
		})
	}
}
