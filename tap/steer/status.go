package steer

// Status says what has become of the wish for a latency queue.
type Status struct {
	On bool `json:"on"`
	// Reason is why not, if it is not on.
	Reason string `json:"reason,omitempty"`
	Classes
	Limit int `json:"limit,omitempty"` // bytes of the longest frame that goes there
}
