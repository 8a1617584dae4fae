package messaging

// StartAt makes the data channels number their writes as if so many had been
// made. Before Start only.
func (c *Conn) StartAt(writes uint32) {
	for _, ch := range c.channels {
		ch.tx.posted, ch.tx.completed, ch.tx.signaled = writes, writes, writes
	}
}
