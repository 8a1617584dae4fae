package protocol

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// Proof is the data of CfgBind: an HMAC-SHA256 of 32 bytes. docs/protocol.md §4.5 specifies the
// key and the text.
type Proof [sha256.Size]byte

// String does not show the proof, which is secret.
func (p Proof) String() string { return "proof" }

// GoString does not show the proof for %#v.
func (p Proof) GoString() string { return "protocol.Proof" }

// Equal compares in constant time.
func (p Proof) Equal(o Proof) bool { return hmac.Equal(p[:], o[:]) }

// DecodeProof decodes the data of CfgBind.
func DecodeProof(data []byte) (Proof, error) {
	if err := dataSize(CfgBind, data, sha256.Size); err != nil {
		return Proof{}, err
	}
	return Proof(data), nil
}

// BoundChannel is the part of a proof's text about one side's queue pair of a channel.
type BoundChannel struct {
	QPN, PSN uint32
	LID      uint16
	GID      [16]byte
}

// The first byte of the text: the side that gives the proof.
const (
	proofOfHost = 1
	proofOfUnit = 2
)

// MakeProof returns the proof of the host, or of the I/O unit, that it knows the secret of the
// bootstrap connection, and the queue pairs that were exchanged there: those of the host and of the
// I/O unit, each beginning with the control channel.
func MakeProof(secret []byte, ofHost bool, host, unit []BoundChannel) Proof {
	mac := hmac.New(sha256.New, secret)
	text := []byte{proofOfUnit}
	if ofHost {
		text[0] = proofOfHost
	}
	for _, side := range [][]BoundChannel{host, unit} {
		text = binary.BigEndian.AppendUint16(text, uint16(len(side)))
		for _, c := range side {
			text = binary.BigEndian.AppendUint32(text, c.QPN)
			text = binary.BigEndian.AppendUint32(text, c.PSN)
			text = binary.BigEndian.AppendUint16(text, c.LID)
			text = append(text, c.GID[:]...)
		}
	}
	mac.Write(text)
	return Proof(mac.Sum(nil))
}
