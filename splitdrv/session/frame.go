package session

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/protocol"
)

// maxFrame is the largest payload of a frame in bytes. The largest message, a welcome with
// 256 channels, takes half of it.
const maxFrame = 64 << 10

// A frame consists of the length of its payload in 32 bits, big-endian, and the payload, one
// message in JSON. An empty frame is a heartbeat, which is only permitted after the
// handshake.

func readFrame(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxFrame {
		return nil, fmt.Errorf("frame of %d bytes, at most %d: %w", n, maxFrame, ErrFrame)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return b, nil
}

// encodeFrame returns the frame of a message, for a single write.
func encodeFrame(message any) ([]byte, error) {
	b, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	if len(b) > maxFrame {
		return nil, fmt.Errorf("message of %d bytes, at most %d: %w", len(b), maxFrame, ErrFrame)
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(b)), uint32(len(b))), b...), nil
}

// The types of messages.
const (
	typeHello   = "hello"
	typeWelcome = "welcome"
	typeRefuse  = "refuse"
	typeAccept  = "accept"
	typeReady   = "ready"
	typeBye     = "bye"
	typeRenew   = "renew"
	typeRenewed = "renewed"
	typeDirect  = "direct"
	typeDrain   = "drain"
	typeStays   = "stays"
)

func decode[T any](b []byte) (v T, err error) {
	if err := json.Unmarshal(b, &v); err != nil {
		// The error can contain text of the peer of any length.
		return v, fmt.Errorf("%w: %s", ErrMessage, text(err.Error()))
	}
	return v, nil
}

func messageType(b []byte) (string, error) {
	m, err := decode[struct {
		Type string `json:"type"`
	}](b)
	return m.Type, err
}

type readyMessage struct {
	Type string `json:"type"`
}

type byeMessage struct {
	Type    string `json:"type"`
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

type refuseMessage struct {
	Type     string   `json:"type"`
	Code     Code     `json:"code"`
	Message  string   `json:"message"`
	Versions Versions `json:"versions"`
	Retry    bool     `json:"retry"`
	// RetryAfter is the time in milliseconds for which attempts will fail; 0: unknown.
	RetryAfter uint32 `json:"retry_after_ms,omitempty"`
}

// decodeBye returns a bye as an error.
func decodeBye(b []byte) error {
	m, err := decode[byeMessage](b)
	if err != nil {
		return err
	}
	return &ByeError{Code: Code(text(string(m.Code))), Message: text(m.Message)}
}

func decodeRefuse(b []byte) error {
	m, err := decode[refuseMessage](b)
	if err != nil {
		return err
	}
	if m.Code == CodeVersion && m.Versions != (Versions{}) {
		return &VersionError{Local: spoken, Remote: m.Versions}
	}
	return &RefusedError{
		Code: Code(text(string(m.Code))), Message: text(m.Message), Retry: m.Retry,
		After: time.Duration(m.RetryAfter) * time.Millisecond,
	}
}

// spoken are the protocol versions of this implementation.
var spoken = Versions{Min: protocol.Version, Max: protocol.Version}

// records is the connection to which TLS writes its records. TLS counts a record before it
// writes it. After a failed write, for example at a deadline, no further record may follow,
// not even the one with which TLS closes: the peer would take it for forged ("bad record
// MAC").
type records struct {
	net.Conn
	failed atomic.Pointer[error] // error of the failed write
}

func (r *records) Write(b []byte) (int, error) {
	if err := r.failed.Load(); err != nil {
		return 0, *err
	}
	n, err := r.Conn.Write(b)
	if err != nil {
		r.failed.Store(&err)
	}
	return n, err
}
