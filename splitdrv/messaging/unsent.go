package messaging

// Unsent has the frames that a Conn had read from its ports and not sent when it ended.
type Unsent struct {
	// Frames has copies of the frames that were read and not sent, by data channel, in order.
	Frames [][][]byte
	// Uncertain counts frames that were sent and whose elements were not returned. Each may
	// or may not have reached the peer's port. The peer returns elements a quarter of a pool
	// at a time, so this is an upper bound of the lost frames. They are not sent again.
	Uncertain uint64
	// Lost counts frames that were in a batch that could not be posted.
	Lost uint64
	// Unrevoked counts frames from the peer that are not delivered, because they are in
	// one-touch elements whose windows were not invalidated yet. The peer counts them as
	// uncertain.
	Unrevoked uint64
}

// Count returns the number of frames in Frames.
func (r *Unsent) Count() (n uint64) {
	for _, frames := range r.Frames {
		n += uint64(len(frames))
	}
	return n
}

// handOver passes the frames to the senders of another Conn. The last channel gets the
// frames of channels that this Conn does not have.
func (r *Unsent) handOver(channels []*channel) {
	for i, frames := range r.Frames {
		channels[min(i, len(channels)-1)].tx.Resend(frames)
	}
}
