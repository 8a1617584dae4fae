package messaging_test

import (
	"fmt"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// adapters has the kinds of adapters that sessions meet.
var adapters = []struct {
	name string
	fabrictest.Adapter
	inline int // largest transfer that a session posts inline
}{
	{"everything", fabrictest.Adapter{}, messaging.DefaultInline},
	{"no inline data", fabrictest.Adapter{Inline: -1}, 0},
	{"little inline data", fabrictest.Adapter{Inline: 32}, 32},
	{"no solicited events", fabrictest.Adapter{NoSolicited: true}, messaging.DefaultInline},
	{"no queries", fabrictest.Adapter{NoQuery: true}, messaging.DefaultInline},
	{"less inline data", fabrictest.Adapter{Inline: 96}, 96},
}

// TestAdapters runs sessions with traffic in both directions on each kind of adapter, in each mode
// and with each protection that it can have.
func TestAdapters(t *testing.T) {
	for _, a := range adapters {
		for _, mode := range protocol.Modes() {
			for _, protection := range append(messaging.Protections(), "") {
				if mode.Sends() && protection != "" {
					continue // no memory is lent
				}
				t.Run(fmt.Sprintf("%s, %s, %s", a.name, mode, protection), func(t *testing.T) {
					goleak.VerifyNone(t)
					cfg := patient(messaging.Config{Mode: mode, Protection: protection, Queues: 2,
						Invalidation: true, OneTouch: true})
					n := fabrictest.New(fabrictest.WithAdapter(a.Adapter))
					fabrictest.NoLeaks(t, n)
					sides := []*endpoint{newEndpoint(t, n, "a", cfg), newEndpoint(t, n, "b", cfg)}
					connect(t, sides[0], sides[1])
					for _, h := range sides {
						if err := h.conn.Start(h.ports); err != nil {
							t.Fatal(err)
						}
					}
					ctx := deadline(t)
					var wg sync.WaitGroup
					for i, from := range sides {
						for j := range from.wires {
							wg.Go(func() {
								sizes := append(randomSizes(uint64(2*i+j), 300), 60, 200, 60)
								if err := stream(ctx, from.wires[j], sides[1-i].wires[j], sizes, 1500); err != nil {
									t.Errorf("queue %d from %s: %v", j, from.name, err)
								}
							})
						}
					}
					wg.Wait()
					settled(t, sides[0], sides[1])
					for _, h := range sides {
						if err := h.conn.QueryQueuePairs(); err != nil {
							t.Errorf("%s: %v", h.name, err)
						}
						for i, s := range h.conn.Stats().Channels {
							if s.Inline != a.inline || s.TxInline > 0 && a.inline == 0 {
								t.Errorf("%s: queue %d: %d transfers of up to %d bytes were inline; want %d bytes", h.name, i,
									s.TxInline, s.Inline, a.inline)
							}
						}
					}
				})
			}
		}
	}
}
