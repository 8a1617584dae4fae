package session

import (
	"golang.org/x/time/rate"
)

// drainMessage is sent by the I/O unit: it asks the host to move to another I/O unit, or
// revokes that.
type drainMessage struct {
	Type string `json:"type"`
	On   bool   `json:"on"`
}

// staysMessage is sent by the host: it was asked to move, and cannot for now.
type staysMessage struct {
	Type   string `json:"type"`
	Reason string `json:"reason"` // for display
}

func decodeDrain(b []byte) (on bool, err error) {
	var m drainMessage
	err = decode(b, &m)
	return m.On, err
}

func decodeStays(b []byte) (reason string, err error) {
	var m staysMessage
	if err := decode(b, &m); err != nil {
		return "", err
	}
	return text(m.Reason), nil
}

// The limit for messages drain and stays that are read: at once, and per second in the long
// run. Further messages wait at the sender.
const (
	drainBurst = 16
	drainRate  = 1
)

// draining has the handler of the messages drain, at a host, or stays, at an I/O unit, and
// their limit.
type draining struct {
	drain func(on bool)
	stays func(reason string)
	rate  *rate.Limiter
}
