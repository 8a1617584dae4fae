package attacks

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"time"

	"github.com/splitnic/splitnic/splitdrv/session"
)

// NewKey returns a new key, which is not trusted.
func NewKey() (tls.Certificate, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	return certify(private)
}

// LoadKey reads a key file written by splitnic keygen.
func LoadKey(path string) (tls.Certificate, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return tls.Certificate{}, err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return tls.Certificate{}, fmt.Errorf("%s: no PEM block", path)
	}
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %w", path, err)
	}
	return certify(private.(ed25519.PrivateKey))
}

func certify(private ed25519.PrivateKey) (tls.Certificate, error) {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, nil
}

// Connection is a bootstrap connection to an I/O unit, on which the attacker can send any bytes.
// The caller closes it.
type Connection struct {
	*tls.Conn
	TCP net.Conn // the connection under TLS
}

// Dial makes a TCP connection to the I/O unit at addr, from local address from unless that is
// empty.
func Dial(ctx context.Context, addr, from string) (net.Conn, error) {
	d := net.Dialer{}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	return d.DialContext(ctx, "tcp", addr)
}

// Handshake carries out the TLS handshake over nc as a host does. A nil error does not mean that
// the I/O unit trusts the key.
func Handshake(ctx context.Context, nc net.Conn, key tls.Certificate) (*Connection, error) {
	c := tls.Client(nc, &tls.Config{
		Certificates: []tls.Certificate{key}, NextProtos: []string{"splitnic"}, MinVersion: tls.VersionTLS13,
		InsecureSkipVerify: true, // the attacker does not check the I/O unit's identity
	})
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return &Connection{c, nc}, nil
}

// maxFrame is more bytes than any frame has.
const maxFrame = 1 << 16

// Say sends one message.
func (c *Connection) Say(message any) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// Hear waits for the next message that is not a heartbeat. It decodes the message into into, unless
// that is nil. A message of another type than kind is returned as a *Refusal.
func (c *Connection) Hear(kind string, into any) error {
	for {
		var length [4]byte
		if _, err := io.ReadFull(c, length[:]); err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(length[:])
		if n == 0 {
			continue
		}
		if n > maxFrame {
			return fmt.Errorf("a frame of %d bytes", n)
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(c, b); err != nil {
			return err
		}
		var head struct{ Type, Code, Message string }
		if err := json.Unmarshal(b, &head); err != nil {
			return err
		}
		if head.Type != kind {
			return &Refusal{head.Type, head.Code, head.Message}
		}
		if into == nil {
			return nil
		}
		return json.Unmarshal(b, into)
	}
}

// Refusal is a message of another type than the expected one: a refusal or a bye.
type Refusal struct{ Type, Code, Message string }

// Error implements error.
func (r *Refusal) Error() string { return fmt.Sprintf("%s %s: %s", r.Type, r.Code, r.Message) }

// Ended waits until the I/O unit ends the connection, and returns the last message, nil if there is
// none.
func (c *Connection) Ended() (*Refusal, error) {
	var last *Refusal
	for {
		err := c.Hear("", nil)
		var said *Refusal
		switch {
		case errors.As(err, &said):
			last = said
		case errors.Is(err, os.ErrDeadlineExceeded):
			return last, err
		default:
			return last, nil
		}
	}
}

// The messages of a host.
type (
	hello struct {
		Type     string           `json:"type"`
		Magic    string           `json:"magic"`
		Versions session.Versions `json:"versions"`
		session.Hello
	}
	accept struct {
		Type string `json:"type"`
		session.Accept
	}
	ready struct {
		Type string `json:"type"`
	}
)

// Hello sends the hello and waits for the welcome.
func (c *Connection) Hello(h session.Hello) (w session.Welcome, err error) {
	if err := c.Say(hello{"hello", "splitnic", session.Versions{Min: 1, Max: 1}, h}); err != nil {
		return w, err
	}
	err = c.Hear("welcome", &w)
	return w, err
}

// Accept sends the addresses of the host's queue pairs, and waits for the I/O unit's ready.
func (c *Connection) Accept(a session.Accept) error {
	if err := c.Say(accept{"accept", a}); err != nil {
		return err
	}
	return c.Hear("ready", nil)
}

// Ready reports that the host's queue pairs are connected.
func (c *Connection) Ready() error { return c.Say(ready{"ready"}) }
