package discard

import "errors"

// Status says whether whole datagrams are discarded before a queue is full.
type Status struct {
	On bool `json:"on"`
	// Reason is why not, if it is not on.
	Reason string `json:"reason,omitempty"`
}

// StatusOf is what has become of an attempt that ended with err.
func StatusOf(err error) Status {
	if err != nil {
		return Status{Reason: err.Error()}
	}
	return Status{On: true}
}

// String is "on", or why not.
func (s Status) String() string {
	if s.On {
		return "on"
	}
	return "off: " + s.Reason
}

// ErrUnwanted is why a netdevice has no filter whose configuration says so.
var ErrUnwanted = errors.New("it is not wanted")
