package fabrictest

import (
	"maps"
	"slices"
	"testing"
)

// Live has the numbers of open objects of a network.
type Live struct {
	Devices, Domains, Regions, Windows, CQs, QPs int
}

// Live returns the number of open objects.
func (n *Network) Live() Live {
	n.mu.Lock()
	nodes := slices.Collect(maps.Values(n.nodes))
	n.mu.Unlock()
	var l Live
	for _, nd := range nodes {
		for _, d := range nd.openings() {
			l.Devices++
			for _, dom := range d.openDomains() {
				l.Domains++
				l.Regions += len(open[*region](dom))
				l.Windows += len(open[*window](dom))
				l.CQs += len(open[*cq](dom))
				l.QPs += len(open[*qp](dom))
			}
		}
	}
	return l
}

// NoLeaks fails the test if an object of n is still open when the test has ended and every
// clean-up registered after this call has run.
func NoLeaks(t testing.TB, n *Network) {
	t.Helper()
	t.Cleanup(func() {
		if l := n.Live(); l != (Live{}) {
			t.Errorf("left open on the fabric: %+v", l)
		}
	})
}
