package fabrictest

import "time"

// Cut disconnects the device: messages from and to it are not answered. A reliable sender
// reports StatusRetryExcErr after its time-out; an unreliable sender loses the message. Traffic
// within the device continues.
func (n *Network) Cut(dev string) {
	n.known(dev).cut.Store(true)
	n.kickAll()
}

// Heal undoes Cut. Messages that have not timed out yet are delivered.
func (n *Network) Heal(dev string) {
	n.known(dev).cut.Store(false)
	n.kickAll()
}

// Delay makes every message from or to the device arrive a time d after its post, in order. 0
// ends the delay for messages posted afterwards.
func (n *Network) Delay(dev string, d time.Duration) {
	n.known(dev).delay.Store(int64(d))
}

// Stall stops every message from or to the device until Resume. Posting still works, and
// nothing times out.
func (n *Network) Stall(dev string) {
	n.known(dev).stall.Store(true)
}

// Resume undoes Stall. The stopped messages are delivered in order.
func (n *Network) Resume(dev string) {
	n.known(dev).stall.Store(false)
	n.kickAll()
}

// RefuseNext makes the device refuse the next message with data, as if its key was wrong.
func (n *Network) RefuseNext(dev string) { n.known(dev).refuseNext.Store(true) }

// DropAbove loses the messages of the device with a packet of more than the given number of bytes,
// as a switch does whose MTU is smaller; 0: none is lost. A reliable sender reports
// StatusRetryExcErr after its time-out.
func (n *Network) DropAbove(dev string, bytes int) {
	n.node(dev).largest.Store(int64(bytes))
	n.kickAll()
}

// DropUC loses the next count messages that the device sends over unreliable
// connections.
func (n *Network) DropUC(dev string, count int) {
	n.known(dev).dropUC.Store(int64(count))
}

// OnSend sets the hook that is called for every work request of the device's send queues. nil
// removes the hook.
func (n *Network) OnSend(dev string, h Hook) {
	nd := n.known(dev)
	if h == nil {
		nd.hook.Store(nil)
		return
	}
	nd.hook.Store(&h)
}

// Kill closes all objects of the device at once, as if its process died: its own users get
// net.ErrClosed, its peers get no answer. Device can open the name again.
func (n *Network) Kill(dev string) {
	nd := n.known(dev)
	for _, d := range nd.openings() {
		d.kill()
	}
}

// kickAll makes every waiting queue pair try again.
func (n *Network) kickAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range n.qps {
		q.kick()
	}
}
