package fabric

import (
	"context"
	"fmt"
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

var eventTypes = [...]struct{ key, name string }{
	EventCQErr:            {"cq-err", "completion queue overflowed"},
	EventQPFatal:          {"qp-fatal", "queue pair failed"},
	EventQPReqErr:         {"qp-req-err", "invalid request on queue pair"},
	EventQPAccessErr:      {"qp-access-err", "access violation on queue pair"},
	EventCommEst:          {"comm-est", "communication established"},
	EventSQDrained:        {"sq-drained", "send queue drained"},
	EventPathMig:          {"path-mig", "path migrated"},
	EventPathMigErr:       {"path-mig-err", "path migration failed"},
	EventDeviceFatal:      {"device-fatal", "device failed"},
	EventPortActive:       {"port-active", "port active"},
	EventPortErr:          {"port-err", "port down"},
	EventLIDChange:        {"lid-change", "LID changed"},
	EventPKeyChange:       {"pkey-change", "partition key table changed"},
	EventSMChange:         {"sm-change", "subnet manager changed"},
	EventSRQErr:           {"srq-err", "shared receive queue failed"},
	EventSRQLimitReached:  {"srq-limit-reached", "shared receive queue below its limit"},
	EventQPLastWQEReached: {"qp-last-wqe-reached", "last receive of the queue pair used"},
	EventClientReregister: {"client-reregister", "subnet manager asks for re-registration"},
	EventGIDChange:        {"gid-change", "GID table changed"},
	EventWQFatal:          {"wq-fatal", "work queue failed"},
}

// String returns a description of the event type.
func (t EventType) String() string {
	if int(t) < len(eventTypes) {
		return eventTypes[t].name
	}
	return fmt.Sprintf("event %d", uint32(t))
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

// EventKeys returns the keys of all event types.
func EventKeys() (keys []string) {
	for _, t := range eventTypes {
		keys = append(keys, t.key)
	}
	return keys
}

// Key returns the name of the event type in ibv_get_async_event(3), as one word in small letters,
// and "other" for a type without a name.
func (t EventType) Key() string {
	if int(t) < len(eventTypes) {
		return eventTypes[t].key
	}
	return "other"
}
