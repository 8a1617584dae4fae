package paths

// state is the state of a direct path.
type state uint8

const (
	opening state = iota // frames go through the I/O unit
	held                 // frames wait while markers are in flight
	spilled              // frames go through the I/O unit again: none has gone directly
	direct               // frames go directly
	leaving              // frames wait while direct frames are in flight
	closed               // frames go through the I/O unit
)

// event is an event of a direct path.
type event uint8

const (
	enter event = iota
	confirm
	leave
	overflow // there is no room for more frames that wait
	end
)

// after returns the state after an event. It is s if the event has no effect: the peer may
// confirm a path that is already leaving.
func (s state) after(e event) state {
	switch {
	case e == end:
		return closed
	case e == enter && s == opening:
		return held
	case e == confirm && s == held:
		return direct
	case (e == leave || e == overflow) && s == held:
		return spilled // the frames that wait can follow the earlier ones at once
	case e == leave && s == direct:
		return leaving
	default:
		return s
	}
}

// holds reports whether frames wait.
func (s state) holds() bool { return s == held || s == leaving }

// routes reports whether frames do not use the path through the I/O unit.
func (s state) routes() bool { return s == held || s == direct || s == leaving }
