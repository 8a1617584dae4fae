package fabrictest

import "testing"

// Live has the numbers of open objects of a network.
type Live struct {
	Devices, Domains, Regions, Windows, CQs, QPs int
}

// Live returns the number of open objects.
func (n *Network) Live() Live {
	n.mu.Lock()
	nodes := make([]*node, 0, len(n.nodes))
	for _, nd := range n.nodes {
		nodes = append(nodes, nd)
	}
	n.mu.Unlock()
	var l Live
	for _, nd := range nodes {
		for _, d := range nd.openings() {
			l.Devices++
			for _, dom := range d.openDomains() {
				l.Domains++
				dom.mu.Lock()
				l.Regions += len(dom.regions)
				l.Windows += len(dom.windows)
				l.CQs += len(dom.cqs)
				l.QPs += len(dom.qps)
				dom.mu.Unlock()
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
