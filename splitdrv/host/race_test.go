package host

import (
	"errors"
	"net"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// TestRaceDismisses expects a race to close the connections that it does not need, also one that is
// established when the race is over.
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

// TestRaceSaysElsewhere expects an I/O unit that was not the fastest to get the reason "elsewhere"
// for the end of its connection, unless no I/O unit has won the race.
func TestRaceSaysElsewhere(t *testing.T) {
	trust, err := session.Insecure()
	if err != nil {
		t.Fatal(err)
	}
	rejected := make(chan error, 1)
	ln, err := session.Listen(testenv.Loopback()+":0", session.ServerConfig{
		Security: trust, Rejected: func(_ net.Addr, err error) { rejected <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	for won, want := range map[bool]string{true: "elsewhere", false: "gone"} {
		client, err := session.Dial(t.Context(), ln.Addr().String(), session.ClientConfig{Security: trust})
		if err != nil {
			t.Fatal(err)
		}
		r := &race{ready: map[string]dialled{"a": {client: client}}, won: won}
		r.dismiss()
		if err := <-rejected; session.Reason(err) != want {
			t.Errorf("won %v: %v, which is %q, want %q", won, err, session.Reason(err), want)
		}
	}
}
