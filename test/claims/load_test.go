package claims

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// sizes of frames: the smallest, inline ones, single packets, several packets,
// and the largest.
var sizes = []int{vnet.MinFrame, 60, 220, 221, 1000, 1500, 5000, 30000, 65535}

// answering is a configuration of a side that answers every request with the data of the request.
var answering = messaging.Config{
	OnRequest: func(_ protocol.CfgType, data []byte) (protocol.CfgStatus, []byte) {
		return protocol.CfgOK, slices.Clone(data)
	},
}

// inEachMode runs a test in each transfer mode.
func inEachMode(t *testing.T, test func(t *testing.T, mode protocol.Mode)) {
	for _, mode := range protocol.Modes() {
		t.Run(string(mode), func(t *testing.T) { test(t, mode) })
	}
}

// withMode returns a configuration with another mode and number of data channels.
func withMode(c messaging.Config, mode protocol.Mode, queues int) messaging.Config {
	c.Mode, c.Queues = mode, queues
	return c
}

// ask sends a configuration request from a side and checks the reply.
func (p *pair) ask(from string) {
	p.t.Helper()
	want := protocol.AppendMAC(nil, protocol.MAC{2, 0, 0x5e, 0, 0, 1})
	got, err := p.endpoints[from].conn.Request(deadline(p.t), protocol.CfgMAC, want)
	if err != nil || !bytes.Equal(got, want) {
		p.t.Fatalf("%s: a request was answered with %x, %v", from, got, err)
	}
}

// updates sends frames until each side has given elements back. Frames that wait together take few
// elements.
func (p *pair) updates() {
	p.t.Helper()
	for _, side := range sides {
		p.poll(func() error {
			if len(of(p.posted(side), protocol.FuncBufferRecvPoolUpdate)) > 0 {
				return nil
			}
			p.cross(other(side), 0, repeat(300, 100)...)
			return fmt.Errorf("the %s gives no elements back", side)
		})
	}
}

// traffic has both sides send frames of all sizes, enough of them that buffers are used again, and
// configuration requests.
func (p *pair) traffic() {
	p.t.Helper()
	for _, side := range sides {
		for queue := range p.channels() - 1 {
			p.cross(side, queue, sizes...)
			p.cross(side, queue, repeat(300, 300)...)
		}
		p.ask(side)
	}
}
