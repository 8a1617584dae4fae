package fabrictest

import (
	"slices"
	"testing"

	"github.com/splitnic/splitnic/fabric/conform"
)

// Run checks an implementation of package fabric against its contract, with a subtest for each
// property. newPair is called once per subtest.
func Run(t *testing.T, newPair func(t *testing.T) conform.Pair, without ...string) {
	for _, p := range conform.Properties() {
		if slices.Contains(without, p.Name) {
			continue
		}
		t.Run(p.Name, func(t *testing.T) { p.Check(t, newPair(t)) })
	}
}
