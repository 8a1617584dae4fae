package discard

import "errors"

// Status reports whether whole datagrams are discarded before a queue is full.
type Status struct {
	On bool `json:"on"`
	// Reason is why early discard is off.
	Reason string `json:"reason,omitempty"`
}

// StatusOf returns the status after an attempt to attach a filter; err is its result.
func StatusOf(err error) Status {
	if err != nil {
		return Status{Reason: err.Error()}
	}
	return Status{On: true}
}

// String returns "on", or "off" with the reason.
func (s Status) String() string {
	if s.On {
		return "on"
	}
	return "off: " + s.Reason
}

// ErrUnwanted is the reason if the netdevice's configuration turns the filter off.
var ErrUnwanted = errors.New("it is not wanted")
