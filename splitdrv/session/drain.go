package session

import (
	"golang.org/x/time/rate"
)

// drainMessage is the I/O unit's: the host is asked to go to another I/O unit, or is so
// no longer.
type drainMessage struct {
	Type string `json:"type"`
	On   bool   `json:"on"`
}

// staysMessage is the host's: it has been asked, and has nowhere to go for now.
type staysMessage struct {
	Type   string `json:"type"`
	Reason string `json:"reason"` // for people
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

// Messages drain and stays that are read at a time, and in a second in the long run;
// those that come faster wait at the sender's.
const (
	drainBurst = 16
	drainRate  = 1
)

// draining is what a connection has for the messages drain, at a host, and stays, at an
// I/O unit.
type draining struct {
	drain func(on bool)
	stays func(reason string)
	rate  *rate.Limiter
}
