package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/directed"
)

// serveUnit is the I/O unit. It has a file or block device, and one owner at a time.
func serveUnit(ctx context.Context, dev fabric.Device, ln net.Listener, path string) error {
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	defer ln.Close()
	// What has been reported as written is on the disk.
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_DSYNC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	n, own, err := newNode(dev, directed.Config{Storage: map[uint32]directed.Storage{diskDevice: f}})
	if err != nil {
		return err
	}
	for {
		c, err := ln.Accept()
		if err != nil {
			return errors.Join(unless(ctx, err), n.Close())
		}
		p, err := meet(ctx, c, n, own, disk{Size: size}, true)
		if err != nil {
			fmt.Fprintln(os.Stderr, "directed: an owner did not connect:", err)
			continue
		}
		p.gone(ctx)
		if err := p.close(); err != nil {
			return errors.Join(err, n.Close())
		}
	}
}

// errUnitGone is the error of an owner that has lost its I/O unit.
var errUnitGone = errors.New("the I/O unit is gone")

// serveOwner is the owner. It decides about the requests of requesters, and passes them on to the
// I/O unit at an address.
func serveOwner(ctx context.Context, dev fabric.Device, ln net.Listener, unit string, readOnly bool) error {
	whole := ctx
	ctx, cancel := context.WithCancel(whole)
	defer cancel()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	defer ln.Close()
	var d disk // set before the first request
	n, own, err := newNode(dev, directed.Config{
		Allow: func(_ protocol.Platform, r *protocol.DirectedRequest) bool {
			return r.Device == diskDevice && !slices.ContainsFunc(r.Transactions, d.forbids)
		},
	})
	if err != nil {
		return err
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", unit)
	if err != nil {
		return errors.Join(err, n.Close())
	}
	u, err := meet(ctx, c, n, own, disk{}, false)
	if err != nil {
		return errors.Join(err, n.Close())
	}
	d = disk{Size: u.disk.Size, ReadOnly: readOnly}
	n.Assign(diskDevice, u.link)
	var requesters sync.WaitGroup
	requesters.Go(func() {
		u.gone(ctx)
		cancel()
	})
	for {
		c, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				err = errUnitGone
			}
			cancel()
			requesters.Wait()
			return errors.Join(unless(whole, err), u.close(), n.Close())
		}
		requesters.Go(func() {
			p, err := meet(ctx, c, n, own, d, false)
			if err == nil {
				p.gone(ctx)
				err = p.close()
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "directed: a requester:", err)
			}
		})
	}
}

// forbids reports whether a transaction is none for the disk: beyond its end, a write to one that is
// read-only, or an exchange, which means nothing to a disk.
func (d *disk) forbids(t protocol.DirectedTransaction) bool {
	switch size := uint64(d.Size); {
	case t.Offset > size || t.Bytes() > size-t.Offset:
		return true
	case t.Operation == protocol.DirectedWrite:
		return d.ReadOnly
	}
	return t.Operation != protocol.DirectedRead
}

// unless returns err, or nil if it is due to the end of ctx.
func unless(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
