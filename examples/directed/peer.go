package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/directed"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// diskDevice is the owner's number of its only I/O device.
const diskDevice = 0

// maxHello is the largest number of bytes that a peer may send.
const maxHello = 4096

// hello is what the ends of a link tell each other, as JSON over TCP.
type hello struct {
	Platform protocol.Platform `json:"platform"`
	Address  fabric.Address    `json:"address"`
	disk
}

// disk describes the I/O device to the side that does not have it.
type disk struct {
	Size     int64 `json:"size"` // in bytes
	ReadOnly bool  `json:"readOnly"`
}

// timing suits emulated machines: a lost packet is sent again after a second.
var timing = fabric.Timing{Timeout: 18}

// newNode makes a node with a new platform identifier. Nobody can prove such an identifier to be
// its own: a product would take it from a session, as splitnic does.
func newNode(dev fabric.Device, cfg directed.Config) (*directed.Node, protocol.Platform, error) {
	trust, err := session.Insecure()
	if err != nil {
		return nil, 0, err
	}
	cfg.Device, cfg.Platform, cfg.Timing = dev, trust.Platform(), timing
	return directed.New(cfg), cfg.Platform, nil
}

// peer is the other end of a link.
type peer struct {
	link *directed.Link
	conn net.Conn // whose end is the end of the peer
	tail io.Reader
	disk disk // as the peer describes it
}

// meet exchanges addresses over c, and starts a link. owner says that the peer directs this node.
func meet(
	ctx context.Context, c net.Conn, n *directed.Node, own protocol.Platform, d disk, owner bool,
) (_ *peer, err error) {
	defer context.AfterFunc(ctx, func() { c.Close() })()
	l, err := n.NewLink()
	if err != nil {
		c.Close()
		return nil, err
	}
	defer func() {
		if err != nil {
			c.Close()
			_ = l.Close() // the first error says more
		}
	}()
	l.Owner = owner
	in, out := json.NewDecoder(io.LimitReader(c, maxHello)), json.NewEncoder(c)
	if err := out.Encode(hello{own, l.Address(), d}); err != nil {
		return nil, err
	}
	var h hello
	if err := in.Decode(&h); err != nil {
		return nil, fmt.Errorf("reading the peer's address: %w", err)
	}
	if err := l.Start(h.Address, h.Platform); err != nil {
		return nil, err
	}
	// Both ends have to be started before either of them sends a request.
	if err := out.Encode(true); err != nil {
		return nil, err
	}
	var started bool
	if err := in.Decode(&started); err != nil {
		return nil, fmt.Errorf("waiting for the peer: %w", err)
	}
	return &peer{link: l, conn: c, tail: io.LimitReader(c, maxHello), disk: h.disk}, nil
}

// gone waits until the peer ends or ctx does.
func (p *peer) gone(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { p.conn.Close() })()
	_, _ = io.Copy(io.Discard, p.tail)
}

func (p *peer) close() error {
	p.conn.Close()
	return p.link.Close()
}
