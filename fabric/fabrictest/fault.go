package fabrictest

import "time"

// Cut pulls the device's cable: what it sends, and what is sent to it, is not
// answered. A reliable sender reports StatusRetryExcErr when its time is up;
// an unreliable one loses the message. Traffic within the device goes on.
func (n *Network) Cut(dev string) {
	n.known(dev).cut.Store(true)
	n.kickAll()
}

// Heal undoes Cut. Messages that have not timed out yet are delivered.
func (n *Network) Heal(dev string) {
	n.known(dev).cut.Store(false)
	n.kickAll()
}

// Delay makes every message from or to the device arrive d after it was
// posted, in order; 0 ends that for messages posted from then on.
func (n *Network) Delay(dev string, d time.Duration) {
	nd := n.known(dev)
	old := nd.delay.Swap(int64(d))
	if old == 0 && d != 0 {
		nd.gate.Add(1)
	}
	if old != 0 && d == 0 {
		nd.gate.Add(-1)
	}
}

// Stall freezes every message from or to the device until Resume. Posting goes
// on, and nothing times out.
func (n *Network) Stall(dev string) {
	nd := n.known(dev)
	if !nd.stall.Swap(true) {
		nd.gate.Add(1)
	}
}

// Resume undoes Stall; what was held back is delivered in order.
func (n *Network) Resume(dev string) {
	nd := n.known(dev)
	if nd.stall.Swap(false) {
		nd.gate.Add(-1)
	}
	n.kickAll()
}

// FailNextPost makes the next PostSend on the device take nothing and return
// an error that wraps err.
func (n *Network) FailNextPost(dev string, err error) {
	n.known(dev).failPost.Store(&err)
}

// DropUC loses the next count messages that the device sends over unreliable
// connections.
func (n *Network) DropUC(dev string, count int) {
	n.known(dev).dropUC.Store(int64(count))
}

// OnSend has h decide about every work request of the device's send queues;
// nil ends that.
func (n *Network) OnSend(dev string, h Hook) {
	nd := n.known(dev)
	if h == nil {
		nd.hook.Store(nil)
		return
	}
	nd.hook.Store(&h)
}

// Kill closes everything on the device at once, as when its process dies: its
// own users get net.ErrClosed, its peers no answer. The name can be opened
// again with Device.
func (n *Network) Kill(dev string) {
	nd := n.known(dev)
	nd.mu.Lock()
	devs := make([]*device, 0, len(nd.devs))
	for d := range nd.devs {
		devs = append(devs, d)
	}
	nd.mu.Unlock()
	for _, d := range devs {
		d.kill()
	}
}

// kickAll makes every waiting queue pair look again.
func (n *Network) kickAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range n.qps {
		q.kick()
	}
}
