package verbs

import "github.com/splitnic/splitnic/fabric"

// makeEvent returns an Event of type t with element in the field for that type.
func makeEvent(t fabric.EventType, element uint32) fabric.Event {
	e := fabric.Event{Type: t}
	switch t {
	case fabric.EventCQErr:
		e.CQ = element
	case fabric.EventQPFatal, fabric.EventQPReqErr, fabric.EventQPAccessErr, fabric.EventCommEst, fabric.EventSQDrained,
		fabric.EventPathMig, fabric.EventPathMigErr, fabric.EventQPLastWQEReached:
		e.QPN = element
	case fabric.EventPortActive, fabric.EventPortErr, fabric.EventLIDChange, fabric.EventPKeyChange, fabric.EventSMChange,
		fabric.EventClientReregister, fabric.EventGIDChange:
		e.Port = int(element)
	case fabric.EventDeviceFatal, fabric.EventSRQErr, fabric.EventSRQLimitReached, fabric.EventWQFatal:
	}
	return e
}
