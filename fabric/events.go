package fabric

import (
	"context"
	"fmt"
	"strconv"
)

// EventType is the type of an asynchronous event: the values of enum
// ibv_event_type.
type EventType uint32

// Asynchronous events.
const (
	EventCQErr EventType = iota
	EventQPFatal
	EventQPReqErr
	EventQPAccessErr
	EventCommEst
	EventSQDrained
	EventPathMig
	EventPathMigErr
	EventDeviceFatal
	EventPortActive
	EventPortErr
	EventLIDChange
	EventPKeyChange
	EventSMChange
	EventSRQErr
	EventSRQLimitReached
	EventQPLastWQEReached
	EventClientReregister
	EventGIDChange
	EventWQFatal
)

var eventNames = [...]string{
	EventCQErr:            "completion queue overflowed",
	EventQPFatal:          "queue pair failed",
	EventQPReqErr:         "invalid request on queue pair",
	EventQPAccessErr:      "access violation on queue pair",
	EventCommEst:          "communication established",
	EventSQDrained:        "send queue drained",
	EventPathMig:          "path migrated",
	EventPathMigErr:       "path migration failed",
	EventDeviceFatal:      "device failed",
	EventPortActive:       "port active",
	EventPortErr:          "port down",
	EventLIDChange:        "LID changed",
	EventPKeyChange:       "partition key table changed",
	EventSMChange:         "subnet manager changed",
	EventSRQErr:           "shared receive queue failed",
	EventSRQLimitReached:  "shared receive queue below its limit",
	EventQPLastWQEReached: "last receive of the queue pair used",
	EventClientReregister: "subnet manager asks for re-registration",
	EventGIDChange:        "GID table changed",
	EventWQFatal:          "work queue failed",
}

// String returns a description of the event type.
func (t EventType) String() string {
	if int(t) < len(eventNames) {
		return eventNames[t]
	}
	return "event " + strconv.Itoa(int(t))
}

// Event is an asynchronous event of a device.
type Event struct {
	Type EventType
	Port int    // port number, for events of a port
	QPN  uint32 // queue pair number, for events of a queue pair
	CQ   uint32 // number of a completion queue (Numbered), for its events
}

// String returns a description of the event and the object that it concerns.
func (e Event) String() string {
	switch {
	case e.QPN != 0:
		return fmt.Sprintf("%s (queue pair %#x)", e.Type, e.QPN)
	case e.Port != 0:
		return fmt.Sprintf("%s (port %d)", e.Type, e.Port)
	case e.Type == EventCQErr:
		return fmt.Sprintf("%s (completion queue %d)", e.Type, e.CQ)
	}
	return e.Type.String()
}

// EventSource is a Device that reports asynchronous events.
type EventSource interface {
	// WaitEvent consumes one event. It sleeps in Go's poller until there is one, ctx is done or
	// the device is closed. The event has already been acknowledged.
	WaitEvent(ctx context.Context) (Event, error)
}

// Numbered is a CQ that asynchronous events can name.
type Numbered interface {
	Handle() uint32 // Event.CQ
}

var eventKeys = [...]string{
	EventCQErr:            "cq-err",
	EventQPFatal:          "qp-fatal",
	EventQPReqErr:         "qp-req-err",
	EventQPAccessErr:      "qp-access-err",
	EventCommEst:          "comm-est",
	EventSQDrained:        "sq-drained",
	EventPathMig:          "path-mig",
	EventPathMigErr:       "path-mig-err",
	EventDeviceFatal:      "device-fatal",
	EventPortActive:       "port-active",
	EventPortErr:          "port-err",
	EventLIDChange:        "lid-change",
	EventPKeyChange:       "pkey-change",
	EventSMChange:         "sm-change",
	EventSRQErr:           "srq-err",
	EventSRQLimitReached:  "srq-limit-reached",
	EventQPLastWQEReached: "qp-last-wqe-reached",
	EventClientReregister: "client-reregister",
	EventGIDChange:        "gid-change",
	EventWQFatal:          "wq-fatal",
}

// EventKeys returns the keys of all event types.
func EventKeys() []string { return eventKeys[:] }

// Key returns the name of the event type in ibv_get_async_event(3), as one word in small letters,
// and "other" for a type without a name.
func (t EventType) Key() string {
	if int(t) < len(eventKeys) {
		return eventKeys[t]
	}
	return "other"
}
