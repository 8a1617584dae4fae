package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// Client is the initiator of measurements with a [Server] on another node.
type Client struct {
	cfg ClientConfig
	run string
}

// ClientConfig is the configuration of a Client.
type ClientConfig struct {
	Device   fabric.Device
	Addr     string // of the Server; DefaultPort if it has no port
	Security *session.Security
	// Messaging is the template for the channels. A Spec replaces some of its fields.
	Messaging messaging.Config
	Name      string // of this node
	Software  string // version
	// Watch, if set, is called about once a second while a measurement runs.
	Watch func(Progress)
	// OtherSoftware is called with the version of a Server that has another one.
	OtherSoftware func(version string)
}

// NewClient begins a run. It sends nothing.
func NewClient(cfg ClientConfig) *Client {
	cfg.Addr = WithPort(cfg.Addr)
	var run [runSize]byte
	rand.Read(run[:]) // never fails
	return &Client{cfg: cfg, run: hex.EncodeToString(run[:])}
}

// Measure carries out one measurement of the run. After the last one, the Server can serve another
// run. An error ends the run.
func (c *Client) Measure(ctx context.Context, s Spec, last bool) (r Result, err error) {
	if err := s.Check(); err != nil {
		return Result{}, err
	}
	defer func() { err = explain(c.cfg.Addr, err) }()
	conn, err := session.Dial(ctx, c.cfg.Addr, session.ClientConfig{Security: c.cfg.Security,
		HandshakeTimeout: handshakeTime, PeerTimeout: silence})
	if err != nil {
		return Result{}, err
	}
	defer conn.Close()
	mcfg := c.cfg.Messaging
	mcfg.Device = c.cfg.Device
	welcome, err := conn.Hello(ctx, session.Hello{
		Features: append(s.encode(c.run), protocol.FeatureBind), Name: c.cfg.Name, Software: c.cfg.Software,
		Modes: []protocol.Mode{s.Mode}, Queues: s.Queues, Pools: s.messaging(mcfg).Lends(), MaxMTU: protocol.MaxMTU,
	})
	if err != nil {
		return Result{}, err
	}
	if !slices.Contains(welcome.Features, parameterVersion) || welcome.Queues != s.Queues {
		err := errors.New("it shares a network card and measures nothing")
		return Result{}, errors.Join(fmt.Errorf("%w: %w", err, session.ErrNotSplitnic),
			conn.Bye(session.CodeFailed, err.Error()))
	}
	if welcome.Software != c.cfg.Software {
		c.cfg.OtherSoftware(welcome.Software)
	}
	mcfg.PeerPools = welcome.Pools
	e, err := newEndOf(conn, c.cfg.Addr, s, mcfg, welcome.Grants(protocol.FeatureBind), true)
	if err != nil {
		return Result{}, errors.Join(err, conn.Bye(session.CodeFailed, err.Error()))
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := conn.Accept(ctx, session.Accept{ControlReceives: e.conn.ControlReceives(),
		Channels: session.Channels(e.conn.Addresses())}); err != nil {
		return Result{}, err
	}
	if err := e.with(ctx, conn, welcome.Channels, welcome.ControlReceives, c.cfg.Watch); err != nil {
		return Result{}, err
	}
	r = e.result(formTwoNode, c.cfg.Device.Name())
	code := codeNext
	if last {
		code = codeDone
	}
	return r, conn.Bye(code, "measured")
}
