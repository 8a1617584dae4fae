package paths

// state is where a direct path is between its Open and its Close.
type state uint8

const (
	opening state = iota // frames go through the I/O unit
	held                 // frames wait: the markers are on their way
	direct               // frames go directly
	leaving              // frames wait: what was sent directly is on its way
	closed               // frames go through the I/O unit
)

// event is what the path is told.
type event uint8

const (
	enter event = iota
	confirm
	leave
	end
)

// after is the state that follows, which is s itself for an event that says nothing
// new: the peer may confirm a path that is being left.
func (s state) after(e event) state {
	switch {
	case e == end:
		return closed
	case e == enter && s == opening:
		return held
	case e == confirm && s == held:
		return direct
	case e == leave && (s == held || s == direct):
		return leaving
	default:
		return s
	}
}

// holds reports whether frames wait, and none may be lost.
func (s state) holds() bool { return s == held || s == leaving }

// routes reports whether frames are not the I/O unit's path's.
func (s state) routes() bool { return s == held || s == direct || s == leaving }
