package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// The ioctls of linux/nbd.h, and flags of a device.
const (
	nbdSetSock       = 0xab00
	nbdSetBlockSize  = 0xab01
	nbdDoIt          = 0xab03
	nbdClearSock     = 0xab04
	nbdSetBlocks     = 0xab07
	nbdDisconnectDev = 0xab08
	nbdSetFlags      = 0xab0a

	nbdHasFlags = 1 << 0
	nbdReadOnly = 1 << 1
)

// blockSize is the size of the smallest part of a device that the kernel reads or writes.
const blockSize = 512

// attach makes d the contents of a block device of the kernel, /dev/nbd0 or another one, until ctx
// ends.
func attach(ctx context.Context, d *remoteDisk, path string) (err error) {
	dev, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w (is the kernel's module nbd loaded?)", err)
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	kernel, own, err := socketPair()
	if err != nil {
		return err
	}
	defer own.Close()
	flags := nbdHasFlags
	if d.ReadOnly {
		flags |= nbdReadOnly
	}
	fd := int(dev.Fd())
	for _, set := range []struct {
		request uint
		value   int
	}{
		{nbdSetBlockSize, blockSize}, {nbdSetBlocks, int(d.Size / blockSize)}, {nbdSetFlags, flags},
		{nbdSetSock, int(kernel.Fd())},
	} {
		if err := unix.IoctlSetInt(fd, set.request, set.value); err != nil {
			kernel.Close()
			return fmt.Errorf("%s, ioctl %#x: %w", path, set.request, err)
		}
	}
	kernel.Close() // the kernel has a reference
	ended := make(chan error, 1)
	go func() { ended <- doIt(fd) }()
	// The kernel sends the request to disconnect when all others are answered.
	defer context.AfterFunc(ctx, func() { _ = unix.IoctlSetInt(fd, nbdDisconnectDev, 0) })()
	err = serveNBD(own, d)
	if errors.Is(err, io.EOF) {
		err = nil // the kernel has closed its end
	}
	own.Close()
	return errors.Join(err, <-ended, unix.IoctlSetInt(fd, nbdClearSock, 0))
}

// doIt has the kernel use the socket until it is disconnected.
func doIt(fd int) error {
	// A signal would end the device. This thread, which ends with the goroutine, gets none.
	runtime.LockOSThread()
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &all, nil); err != nil {
		return err
	}
	if err := unix.IoctlSetInt(fd, nbdDoIt, 0); err != nil {
		return fmt.Errorf("serving the block device: %w", err)
	}
	return nil
}

// socketPair returns two connected sockets: one for the kernel, and one for this process.
func socketPair() (kernel *os.File, own net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	kernel = os.NewFile(uintptr(fds[0]), "kernel")
	f := os.NewFile(uintptr(fds[1]), "own")
	defer f.Close()
	if own, err = net.FileConn(f); err != nil {
		kernel.Close()
	}
	return kernel, own, err
}
