package verbs

// #include "shim.h"
import "C"

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
)

// isGone reports whether an errno is that of a device that is gone: unplugged, reset, or without
// its driver. The kernel has destroyed all its objects then, and answers all calls like this.
func isGone(no syscall.Errno) bool { return no == syscall.EIO || no == syscall.ENODEV }

// given returns the result of the call that destroys an object. An object of a device that is gone
// is given up: the kernel has destroyed it, and what is left of it in this process goes with the
// process. Otherwise nothing of the device could be closed, nor the memory unmapped.
func (c *Context) given(no syscall.Errno) syscall.Errno {
	if isGone(no) {
		c.gone.Store(true)
	}
	if c.gone.Load() {
		return 0
	}
	return no
}

// givenErr is given for an error of this package.
func (c *Context) givenErr(err error) error {
	var no syscall.Errno
	if errors.As(err, &no) && c.given(no) == 0 {
		return nil
	}
	return err
}

// destroyChannel destroys a completion channel. The one of a device that is gone can still count a
// queue that was given up, and is closed without libibverbs.
func (c *Context) destroyChannel(ch *C.struct_ibv_comp_channel) syscall.Errno {
	fd := int(ch.fd)
	no := errno(C.ibv_destroy_comp_channel(ch))
	if no != 0 && c.gone.Load() {
		_ = unix.Close(fd) // nothing else can be done about an error
		return 0
	}
	return no
}

// Refresh forgets what was read from the device, if an event of a port says that it has changed.
func (c *Context) Refresh(ev fabric.Event) {
	if ev.Port != 0 {
		c.changes.Add(1)
	}
}
