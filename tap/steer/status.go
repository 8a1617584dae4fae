package steer

// Status reports whether a latency queue is in use.
type Status struct {
	On bool `json:"on"`
	// Reason is why the latency queue is off.
	Reason string `json:"reason,omitempty"`
	Classes
	Limit int `json:"limit,omitempty"` // length in bytes of the longest frame that goes there
}
