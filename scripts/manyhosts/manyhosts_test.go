package main

import (
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
)

// meet has hosts connect at once, and wants all of them in, none taken for dead,
// and none sent away because there were too many.
func meet(t *testing.T, ports string) {
	r, err := gather(t.Context(), crowd{hosts: 100, ports: ports, stay: time.Second, within: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if r.allIn == 0 || r.silent != 0 || r.crowded != 0 {
		t.Errorf("%s\n%v\n%v", header, r, r.reasons)
	}
}

// TestManyHosts has ports that cost nothing.
func TestManyHosts(t *testing.T) { meet(t, noPorts) }

// TestNetnsManyHosts has a macvtap for each host.
func TestNetnsManyHosts(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NeedTUN(t)
	meet(t, macvtapPorts)
}
