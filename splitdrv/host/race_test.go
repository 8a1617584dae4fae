package host

import (
	"errors"
	"testing"
)

// TestRaceDismisses closes the connections that a race has no use for, also one that
// comes about when it is over.
func TestRaceDismisses(t *testing.T) {
	begin := attachments(t)
	ready, coming := begin("a"), begin("b")
	r := &race{
		opener: &opener{retired: newTestRetired()}, dials: make(chan dialled, 2), dialing: 2,
		ready: map[string]dialled{"a": {client: ready.client}},
	}
	r.dials <- dialled{addr: "c", err: errors.New("nobody is there")}
	r.dials <- dialled{addr: "b", client: coming.client}
	r.dismiss()
	for _, a := range []*attachment{ready, coming} {
		if a.client.Err() == nil {
			t.Errorf("the connection to %s goes on", a.addr)
		}
	}
}
