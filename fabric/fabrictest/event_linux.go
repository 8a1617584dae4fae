package fabrictest

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/eventfd"
)

// eventFD is an eventfd(2) in semaphore mode. It is readable while its count is not 0.
type eventFD struct{ num int }

func newEventFD() (eventFD, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK|unix.EFD_SEMAPHORE)
	if err != nil {
		return eventFD{}, fmt.Errorf("making an eventfd: %w", err)
	}
	return eventFD{fd}, nil
}

func (e eventFD) add() {
	if err := eventfd.Raise(e.num); err != nil {
		panic(fmt.Sprintf("fabrictest: writing eventfd %d, which only its queue may use: %v", e.num, err))
	}
}

func (e eventFD) sub() {
	var count uint64
	if err := eventfd.Lower(e.num, &count); err != nil {
		panic(fmt.Sprintf("fabrictest: reading eventfd %d, which only its queue may use: %v", e.num, err))
	}
}

func (e eventFD) close() { _ = unix.Close(e.num) }
