package fabrictest

import (
	"testing"

	"github.com/splitnic/splitnic/fabric/conform"
)

// Run checks an implementation of package fabric against its contract: a subtest
// for each property. newPair is called once for each.
func Run(t *testing.T, newPair func(t *testing.T) conform.Pair) {
	for _, p := range conform.Properties() {
		t.Run(p.Name, func(t *testing.T) { p.Check(t, newPair(t)) })
	}
}
