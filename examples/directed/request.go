package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/directed"
)

// bufferSize is the number of bytes that one request moves at most.
const bufferSize = 1 << 20

// remoteDisk is the I/O device as the requester sees it. Its methods are called by one goroutine.
type remoteDisk struct {
	disk
	ctx  context.Context
	node *directed.Node
	peer *peer
	mem  []byte
	in   *directed.Memory // mem, for reads from the device
	out  *directed.Memory // mem, for writes to the device
}

// newDisk connects to the owner at an address, and registers memory for the data.
func newDisk(ctx context.Context, dev fabric.Device, owner string) (_ *remoteDisk, err error) {
	n, own, err := newNode(dev, directed.Config{})
	if err != nil {
		return nil, err
	}
	d := &remoteDisk{ctx: ctx, node: n}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", owner)
	if err != nil {
		return nil, err
	}
	if d.peer, err = meet(ctx, c, n, own, disk{}, false); err != nil {
		return nil, err
	}
	d.disk = d.peer.disk
	// Memory that a device writes has to be outside the Go heap.
	d.mem, err = unix.Mmap(-1, 0, bufferSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes: %w", bufferSize, err)
	}
	if d.in, err = d.peer.link.Register(d.mem, directed.Result); err != nil {
		return nil, err
	}
	d.out, err = d.peer.link.Register(d.mem, directed.Source)
	return d, err
}

// ReadAt implements io.ReaderAt. The I/O unit writes the data to mem.
func (d *remoteDisk) ReadAt(b []byte, at int64) (int, error) {
	return transfer(len(b), func(done, n int) error {
		err := d.do(directed.Transaction{
			Operation: protocol.DirectedRead, Offset: uint64(at) + uint64(done), Results: whole(d.in, n),
		})
		if err == nil {
			copy(b[done:], d.mem[:n])
		}
		return err
	})
}

// WriteAt implements io.WriterAt. The I/O unit reads the data from mem.
func (d *remoteDisk) WriteAt(b []byte, at int64) (int, error) {
	return transfer(len(b), func(done, n int) error {
		copy(d.mem[:n], b[done:])
		return d.do(directed.Transaction{
			Operation: protocol.DirectedWrite, Offset: uint64(at) + uint64(done), Source: whole(d.out, n),
		})
	})
}

// do has the I/O unit carry out a transaction.
func (d *remoteDisk) do(t directed.Transaction) error {
	return d.peer.link.Do(d.ctx, directed.Request{Device: diskDevice, Transactions: []directed.Transaction{t}})
}

// whole returns a list of one buffer: the first n bytes of m.
func whole(m *directed.Memory, n int) []protocol.ListElement {
	return []protocol.ListElement{{Fragment: m.Fragment(0, n), EndOfBuffer: true}}
}

// transfer calls part for each part of size bytes, after so many that are done.
func transfer(size int, part func(done, n int) error) (done int, err error) {
	for done < size {
		n := min(size-done, bufferSize)
		if err := part(done, n); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// close ends the link, and with it the registration of the memory, which can then be freed.
func (d *remoteDisk) close() error {
	var errs []error
	if d.peer != nil {
		errs = append(errs, d.peer.close())
	}
	errs = append(errs, d.node.Close())
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if d.mem == nil {
		return nil
	}
	return unix.Munmap(d.mem)
}
