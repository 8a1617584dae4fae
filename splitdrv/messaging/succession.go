package messaging

// Unsent is what the end of a Conn leaves of the frames that it had taken from
// its ports.
type Unsent struct {
	// Frames were read and not sent, by data channel, in order. They are copies.
	Frames [][][]byte
	// Uncertain counts frames that were sent and whose element has not come back:
	// each may or may not have got to the peer's port. The peer returns elements
	// a quarter of a pool at a time, so it is a bound. None of them is sent again.
	Uncertain uint64
	// Lost counts frames that were about to be sent when it failed.
	Lost uint64
	// Unrevoked counts frames that had come from the peer and are not delivered:
	// they lie in one-touch elements whose windows were not invalid yet. The peer
	// has them among its uncertain ones.
	Unrevoked uint64
}

// Count is how many frames there are to be sent.
func (r *Unsent) Count() (n uint64) {
	for _, frames := range r.Frames {
		n += uint64(len(frames))
	}
	return n
}

// handOver hands the frames to the senders of another Conn. What belonged to channels
// that this one does not have goes to the last one.
func (r *Unsent) handOver(channels []*channel) {
	for i, frames := range r.Frames {
		tx := channels[min(i, len(channels)-1)].tx
		tx.in.unsent = append(tx.in.unsent, frames...)
	}
}

// unsent adds what the sender, which has ended, leaves.
func (s *sender) unsent(r *Unsent, channel int) {
	r.Frames[channel] = s.in.left()
	r.Lost += uint64(s.out.frames)
	for _, g := range *s.remote.Load() {
		for elem := range g.Outstanding() {
			r.Uncertain += uint64(g.Frames[elem])
		}
	}
}
