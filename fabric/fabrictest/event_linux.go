package fabrictest

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// eventFD is an eventfd(2) in semaphore mode: readable while its count is not
// zero.
type eventFD struct{ num int }

func newEventFD() (eventFD, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK|unix.EFD_SEMAPHORE)
	if err != nil {
		return eventFD{}, fmt.Errorf("making an eventfd: %w", err)
	}
	return eventFD{fd}, nil
}

func (e eventFD) add() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	if _, err := unix.Write(e.num, one[:]); err != nil {
		panic(fmt.Sprintf("fabrictest: writing eventfd %d, which only its queue may use: %v", e.num, err))
	}
}

func (e eventFD) sub() {
	var count [8]byte
	if _, err := unix.Read(e.num, count[:]); err != nil {
		panic(fmt.Sprintf("fabrictest: reading eventfd %d, which only its queue may use: %v", e.num, err))
	}
}

func (e eventFD) close() { _ = unix.Close(e.num) }
