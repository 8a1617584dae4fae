package session

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/session/internal/identity"
)

// A session is renewed over a second connection. Both sides authenticate each other again,
// with their present certificates, and prove that they are the sides of the session. From
// then on the new certificates count for the session, which is not interrupted.

// ErrNoRenewal is returned by Renew if the I/O unit does not support it.
var ErrNoRenewal = errors.New("the I/O unit does not renew sessions")

const proofSize = sha256.Size

// proof shows that its sender is a side of two connections. In JSON it is in hexadecimal.
type proof [proofSize]byte

func (p proof) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, p[:]), nil }

func (p *proof) UnmarshalText(b []byte) error { return decodeHex("proof", p[:], b) }

type renewMessage struct {
	Type    string `json:"type"`
	Session string `json:"session"`
	Proof   proof  `json:"proof"`
}

type renewedMessage struct {
	Type  string `json:"type"`
	Proof proof  `json:"proof"`
}

func decodeRenew(b []byte) (m renewMessage, err error) {
	m, err = decode[renewMessage](b)
	if err == nil && !identity.ValidWord(m.Session) {
		err = invalid("session", m.Session, "must be a word")
	}
	return m, err
}

// The labels of the keying material exported from TLS for proofs, and of the side that gives
// one.
const (
	renewLabel = "EXPERIMENTAL-splitnic-renew"
	hostProof  = "host"
	unitProof  = "I/O unit"
)

// proofs returns the proofs of both sides that the ends of a session's connection are also
// the ends of a fresh one.
func proofs(session, fresh *authentication) (host, unit proof, err error) {
	var secrets [2][]byte
	for i, c := range []*authentication{session, fresh} {
		state := c.tls.ConnectionState()
		if secrets[i], err = state.ExportKeyingMaterial(renewLabel, nil, sha256.Size); err != nil {
			return host, unit, fmt.Errorf("export from the TLS session with %v: %w", c, err)
		}
	}
	by := func(who string) (p proof) {
		mac := hmac.New(sha256.New, secrets[0])
		mac.Write([]byte(who))
		mac.Write(secrets[1])
		mac.Sum(p[:0])
		return p
	}
	return by(hostProof), by(unitProof), nil
}

func (p proof) is(other proof) bool { return hmac.Equal(p[:], other[:]) }

// Renew authenticates both sides again, over a separate connection, so that the session
// continues with their present certificates. It may be called while the session is
// established, by one goroutine at a time. An error does not end the session.
func (c *Client) Renew(ctx context.Context) error {
	if !c.welcome.Grants(protocol.FeatureRenew) {
		return ErrNoRenewal
	}
	fresh, err := Dial(ctx, c.RemoteAddr().String(), c.cfg)
	if err != nil {
		return fmt.Errorf("renew the session: %w", err)
	}
	defer fresh.Close()
	return fresh.step(ctx, "renew the session with", func() error {
		host, unit, err := proofs(&c.authentication, &fresh.authentication)
		if err != nil {
			return err
		}
		sendErr := fresh.send(renewMessage{typeRenew, c.welcome.Session, host})
		b, err := fresh.receive(typeRenewed)
		if err != nil {
			return errors.Join(err, sendErr)
		}
		m, err := decode[renewedMessage](b)
		if err != nil {
			return err
		}
		if !m.Proof.is(unit) {
			return invalid("proof", "another", "must be that of the I/O unit that has the session")
		}
		return c.security.renew(&c.authentication, &fresh.authentication)
	})
}

// renewed answers the request of a host to renew a session over c, a fresh connection.
func (c *Conn) renewed(b []byte) error {
	m, err := decodeRenew(b)
	if err != nil {
		return err
	}
	old := c.security.session(m.Session)
	if old == nil {
		return invalid("session", m.Session, "must be one that there is")
	}
	host, unit, err := proofs(old, &c.authentication)
	if err != nil {
		return err
	}
	if !m.Proof.is(host) {
		return invalid("proof", "another", "must be that of the host that has the session")
	}
	if err := c.security.renew(old, &c.authentication); err != nil {
		return err
	}
	return c.send(renewedMessage{typeRenewed, unit})
}
