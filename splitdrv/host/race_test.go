package host

import (
	"errors"
	"testing"
)

// TestRaceDismisses closes the connections that a race has no use for, also one that
// comes about when it is over.
func TestRaceDismisses(t *testing.T) {
	begin := attachments(t)
	ready, coming := begin(0), begin(1)
	r := &race{
		opener: &opener{retired: newTestRetired()}, dials: make(chan dialled, 2), dialing: 2,
		ready: map[int]dialled{0: {client: ready.client}},
	}
	r.dials <- dialled{unit: 2, err: errors.New("nobody is there")}
	r.dials <- dialled{unit: 1, client: coming.client}
	r.dismiss()
	for _, a := range []*attachment{ready, coming} {
		if a.client.Err() == nil {
			t.Errorf("the connection to %s goes on", a.addr)
		}
	}
}
