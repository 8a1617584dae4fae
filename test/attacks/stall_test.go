package attacks

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// Stage is a point of the handshake at which an attacker can stop.
type Stage int

// The stages, each after the one before it.
const (
	AfterTCP         Stage = iota // connected, nothing sent
	WithinTLS                     // half a ClientHello
	AfterClientHello              // the I/O unit has answered, by its most expensive message
	AfterTLS                      // authenticated, no hello
	WithinHello                   // half a hello
	AfterWelcome                  // the I/O unit has a netdevice and queue pairs for this host
	AfterAccept                   // the I/O unit's queue pairs are connected, the attacker's are not
	Stages                        // number of stages
)

// String names the stage.
func (s Stage) String() string {
	return [...]string{"after TCP", "within TLS", "after the ClientHello", "after TLS", "within the hello",
		"after the welcome", "after the accept"}[s]
}

// ClientHello returns the first message of TLS, as a host sends it.
func ClientHello(ctx context.Context, key tls.Certificate) ([]byte, error) {
	var heard first
	_, err := Handshake(ctx, &heard, key)
	if !errors.Is(err, errFirst) {
		return nil, fmt.Errorf("no ClientHello: %w", err)
	}
	return heard.Bytes(), nil
}

// errFirst ends a connection after its first write.
var errFirst = errors.New("first write")

// first is a connection that keeps the first bytes written.
type first struct {
	net.Conn
	bytes.Buffer
}

// Read implements net.Conn.
func (*first) Read([]byte) (int, error) { return 0, errFirst }

// Write implements net.Conn.
func (f *first) Write(b []byte) (int, error) { return f.Buffer.Write(b) }

// Close implements net.Conn.
func (*first) Close() error { return nil }

// SetDeadline implements net.Conn.
func (*first) SetDeadline(time.Time) error { return nil }

// Stall carries out the handshake up to a stage, and stops. The queue pairs in its accept do not
// exist. The caller closes the connection.
func Stall(ctx context.Context, to Target, name string, stage Stage) (nc net.Conn, err error) {
	nc, err = Dial(ctx, to.Address, to.From)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("stop %v: %w", stage, err), nc.Close())
		}
	}()
	if stage <= AfterClientHello {
		if stage == AfterTCP {
			return nc, nil
		}
		b, err := ClientHello(ctx, to.Key)
		if err != nil {
			return nc, err
		}
		if stage == WithinTLS {
			b = b[:len(b)/2]
		}
		if _, err := nc.Write(b); err != nil || stage == WithinTLS {
			return nc, err
		}
		nc.SetReadDeadline(time.Now().Add(to.Patience))
		_, err = io.ReadFull(nc, make([]byte, 5))
		return nc, err
	}
	c, err := Handshake(ctx, nc, to.Key)
	if err != nil || stage == AfterTLS {
		return nc, err
	}
	c.SetDeadline(time.Now().Add(to.Patience))
	if stage == WithinHello {
		_, err = c.Write([]byte{0, 0, 1, 0, '{'})
		return nc, err
	}
	w, err := c.Hello(honestHello(name, protocol.ModeImm))
	if err != nil || stage == AfterWelcome {
		return nc, err
	}
	a := session.Accept{ControlReceives: protocol.ControlReceives(w.Mode, w.Queues, w.Pools), Channels: w.Channels}
	for i := range a.Channels {
		a.Channels[i].QPN, a.Channels[i].PSN = 0x7f0000+uint32(i), 1
	}
	return nc, c.Accept(a)
}

// drip is a connection that writes a byte at a time, with pauses, and stops when the other end has
// closed. Without a pause it writes like any other connection.
type drip struct {
	net.Conn
	pause time.Duration
}

// Write implements net.Conn.
func (d *drip) Write(b []byte) (int, error) {
	if d.pause == 0 {
		return d.Conn.Write(b)
	}
	tick := time.NewTicker(d.pause)
	defer tick.Stop()
	for i := range b {
		if _, err := d.Conn.Write(b[i : i+1]); err != nil {
			return i, err
		}
		<-tick.C
	}
	return len(b), nil
}

// Drip sends the handshake byte by byte after a stage, which is AfterTCP or AfterTLS, until the I/O
// unit ends the connection, which is not an error.
func Drip(ctx context.Context, to Target, after Stage, pause time.Duration) error {
	nc, err := Dial(ctx, to.Address, to.From)
	if err != nil {
		return err
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(to.Patience))
	d := &drip{Conn: nc}
	if after == AfterTCP {
		d.pause = pause
	}
	c, err := Handshake(ctx, d, to.Key)
	switch {
	case err == nil:
	case after == AfterTCP:
		return nil
	default:
		return err
	}
	d.pause = pause
	_, err = c.Hello(honestHello("drip", protocol.ModeImm))
	if err == nil {
		return errors.New("a hello that takes so long was heard to its end")
	}
	return nil
}
