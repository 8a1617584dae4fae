package protocol

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// Proof is the data of CfgBind: an HMAC-SHA256, 32 bytes. docs/protocol.md §4.5
// has the key and the text.
type Proof [sha256.Size]byte

// String does not show the proof: it is nobody else's business.
func (p Proof) String() string { return "proof" }

// GoString is for %#v.
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

// AppendProof appends the data of CfgBind.
func AppendProof(dst []byte, p Proof) []byte { return append(dst, p[:]...) }

// BoundChannel is what a Proof says of one side's queue pair of a channel.
type BoundChannel struct {
	QPN, PSN uint32
	LID      uint16
	GID      [16]byte
}

// Who gives a proof: the first byte of its text.
const (
	proofOfHost = 1
	proofOfUnit = 2
)

// MakeProof is the proof of the host, or else of the I/O unit, that it knows
// the secret of the bootstrap connection, and which queue pairs it has agreed
// upon there: the host's and the I/O unit's, the control channel first.
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
