//go:build !race

// One goroutine tries something very often: under the race detector it would take ten times as long, and
// show the same.

package iounit

import (
	"fmt"
	"testing"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// TestOwnAddressIsNotChosen has hosts with many names. The addresses that these give them must be
// few of all that there are, so that no host finds a name, or a key if the I/O unit knows the key by
// a name, for which its address is that of another station.
func TestOwnAddressIsNotChosen(t *testing.T) {
	keys := []session.Identity{{Fingerprint: session.Fingerprint{1}}, {Fingerprint: session.Fingerprint{2}}}
	few := map[protocol.MAC]bool{}
	for i := range 100_000 {
		few[ownAddresses(keys[0], fmt.Sprint("name", i))[0]] = true
	}
	if len(few) > 1<<16 {
		t.Errorf("a key can have %d addresses", len(few))
	}
	if of := ownAddresses(keys[1], "name0")[0]; few[of] {
		t.Errorf("two keys have the address %v", of)
	}
	for i := range keys {
		keys[i].Name = "alpha"
	}
	if a, b := ownAddresses(keys[0], "sn0")[0], ownAddresses(keys[1], "sn0")[0]; a != b || few[a] {
		t.Errorf("keys with one name have the addresses %v and %v", a, b)
	}
}
