package control

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core/coretest"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// notingQP records the lengths of the messages posted to it. None of them completes.
type notingQP struct {
	fabric.QP
	sent []int
}

func (q *notingQP) PostSend(wrs []fabric.SendWR) (int, error) {
	for i := range wrs {
		q.sent = append(q.sent, int(wrs[i].Len))
	}
	return len(wrs), nil
}

// TestPathIsProven expects the second message to be as long as the path MTU on the wire, also where messages
// are sealed, and all others to be as long as their content.
func TestPathIsProven(t *testing.T) {
	const mtu, size = 1024, 20
	for _, sealed := range []bool{false, true} {
		t.Run(fmt.Sprintf("sealed %t", sealed), func(t *testing.T) {
			var o Options
			each := size
			if sealed {
				keys, err := seal.NewKeys(seal.AES128GCM, [seal.SecretSize]byte{1}, true)
				if err != nil {
					t.Fatal(err)
				}
				o.Sealer = keys.Sealer(0, "control")
				each += seal.Overhead
			}
			k, err := New(coretest.New(t, protocol.ModeImm), &o, 8, 8, func([]byte) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			qp := &notingQP{QP: k.QP}
			k.QP = qp
			k.ProvePath(mtu)
			for range 3 {
				if err := k.Send(func(dst []byte) []byte { return append(dst, make([]byte, size)...) }); err != nil {
					t.Fatal(err)
				}
			}
			if want := []int{each, mtu, each}; !slices.Equal(qp.sent, want) {
				t.Errorf("messages of %d bytes, want %d", qp.sent, want)
			}
		})
	}
}

// TestWrongReply has the peer reply to what nobody has asked. Only the reply to a request may pass, and makes
// room for another request.
func TestWrongReply(t *testing.T) {
	for _, c := range []struct {
		name   string
		t      protocol.CfgType
		ahead  uint64 // of the transaction of the request
		passes bool
	}{
		{"the reply", protocol.CfgMTU, 0, true},
		{"about something else", protocol.CfgKeepAlive, 0, false},
		{"to another request", protocol.CfgMTU, 1, false},
	} {
		q := NewRequests(coretest.New(t, protocol.ModeImm), &Options{}, nil, nil)
		q.Slots <- struct{}{}
		q.configuring <- struct{}{}
		p := pending{t: protocol.CfgMTU, reply: make(chan protocol.CfgUtilReply, 1)}
		id := q.expect(p)
		err := q.OnReply(protocol.AppendCfgUtilReply(nil, protocol.CfgUtilReply{TransactionContext: id + c.ahead, Type: c.t}))
		if passes := len(p.reply) == 1; passes != c.passes || passes == errors.Is(err, bufpool.ErrReply) {
			t.Errorf("%s: passed on: %t, %v", c.name, passes, err)
		}
		if all, some := len(q.Slots) == 0, len(q.configuring) == 0; all != c.passes || some != c.passes {
			t.Errorf("%s: room among all requests: %t, among those of the user: %t", c.name, all, some)
		}
	}
}
