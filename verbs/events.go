package verbs

import (
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

// String describes the event in words.
func (t EventType) String() string {
	if int(t) < len(eventNames) {
		return eventNames[t]
	}
	return "event " + strconv.Itoa(int(t))
}

// Event is an asynchronous event of a device.
type Event struct {
	Type EventType
	Port int    // events of a port
	QPN  uint32 // events of a queue pair
	CQ   uint32 // events of a completion queue: CQ.Handle
}

// String describes the event and what it is about.
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

// makeEvent sorts the element of an event into the field of its kind.
func makeEvent(t EventType, element uint32) Event {
	e := Event{Type: t}
	switch t {
	case EventCQErr:
		e.CQ = element
	case EventQPFatal, EventQPReqErr, EventQPAccessErr, EventCommEst, EventSQDrained,
		EventPathMig, EventPathMigErr, EventQPLastWQEReached:
		e.QPN = element
	case EventPortActive, EventPortErr, EventLIDChange, EventPKeyChange, EventSMChange,
		EventClientReregister, EventGIDChange:
		e.Port = int(element)
	case EventDeviceFatal, EventSRQErr, EventSRQLimitReached, EventWQFatal:
	}
	return e
}
