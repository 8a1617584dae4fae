package device

import (
	"time"

	"github.com/splitnic/splitnic/fabric"
)

// Status is the status of a device. Its fields are those of the JSON.
type Status struct {
	Gone   bool      `json:"gone"`
	Since  time.Time `json:"since"`  // when it was opened, or went away
	Losses uint64    `json:"losses"` // how many times it went away since the start
	// Error says why a device that is gone could not be opened the last time.
	Error string `json:"error,omitempty"`
	// DownPorts are the ports whose last event says that they are down.
	DownPorts []int `json:"down_ports,omitempty"`
	// Events counts the asynchronous events since the start, by key (fabric.EventKeys).
	Events    map[string]uint64 `json:"events,omitempty"`
	LastEvent string            `json:"last_event,omitempty"`
	LastTime  time.Time         `json:"last_event_time,omitzero"`
}

// record is a Status that changes.
type record struct {
	status Status
	down   map[int]struct{}
}

func newRecord() record {
	return record{status: Status{Events: make(map[string]uint64)}, down: make(map[int]struct{})}
}

func (r *record) opened() {
	r.status.Gone, r.status.Since, r.status.Error = false, time.Now(), ""
	clear(r.down)
}

func (r *record) lost() {
	r.status.Gone, r.status.Since = true, time.Now()
	r.status.Losses++
}

func (r *record) missing(err error) { r.status.Error = err.Error() }

func (r *record) event(ev fabric.Event) {
	r.status.Events[ev.Type.Key()]++
	r.status.LastEvent, r.status.LastTime = ev.String(), time.Now()
	switch ev.Type {
	case fabric.EventPortErr:
		r.down[ev.Port] = struct{}{}
	case fabric.EventPortActive:
		delete(r.down, ev.Port)
	default:
	}
}
