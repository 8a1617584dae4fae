package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/directed"
)

// The size of the disk in a test is no multiple of the size of the buffer.
const diskSize = 5*bufferSize/2 + 512

// listen returns a listener on this machine.
func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// machines has the I/O unit and the owner run, and returns the requester's view of the disk, and the
// I/O unit's file.
func machines(t *testing.T, requester, owner, unit fabric.Device, readOnly bool) (d *remoteDisk, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "disk")
	content := make([]byte, diskSize)
	for i := range content {
		content[i] = byte(i>>9*7 + i)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	unitListener, ownerListener := listen(t), listen(t)
	ended := make(chan error, 2)
	go func() { ended <- serveUnit(ctx, unit, unitListener, path) }()
	go func() { ended <- serveOwner(ctx, owner, ownerListener, unitListener.Addr().String(), readOnly) }()
	d, err := newDisk(t.Context(), requester, ownerListener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
		cancel()
		for range cap(ended) {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		for _, dev := range []fabric.Device{requester, owner, unit} {
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return d, path
}

// onMemory has the three machines on a fabric in memory.
func onMemory(t *testing.T, readOnly bool) (n *fabrictest.Network, d *remoteDisk, path string) {
	t.Helper()
	n = fabrictest.New()
	fabrictest.NoLeaks(t, n)
	d, path = machines(t, n.Device("requester"), n.Device("owner"), n.Device("unit"), readOnly)
	return n, d, path
}

// client is a client of network block devices.
type client struct {
	*testing.T
	net.Conn

	cookie uint64
}

// serve serves d to a client. The end of the server is sent to ended.
func serve(t *testing.T, d blocks) (c *client, ended chan error) {
	t.Helper()
	own, others := net.Pipe()
	ended = make(chan error, 1)
	go func() {
		ended <- serveNBD(others, d)
		others.Close()
	}()
	t.Cleanup(func() { own.Close() })
	return &client{T: t, Conn: own}, ended
}

func (c *client) send(kind uint16, at uint64, length uint32, data []byte) {
	c.Helper()
	c.cookie += 0x1122334455667788
	b := binary.BigEndian.AppendUint32(nil, nbdRequestMagic)
	b = binary.BigEndian.AppendUint32(b, uint32(kind))
	b = binary.BigEndian.AppendUint64(b, c.cookie)
	b = binary.BigEndian.AppendUint64(b, at)
	b = binary.BigEndian.AppendUint32(b, length)
	if _, err := c.Write(append(b, data...)); err != nil {
		c.Fatal(err)
	}
}

// request sends a request and returns what the answer has: the data of a read, or an error.
func (c *client) request(kind uint16, at uint64, length int, data []byte) ([]byte, syscall.Errno) {
	c.Helper()
	c.send(kind, at, uint32(length), data)
	head := make([]byte, nbdReplySize)
	if _, err := io.ReadFull(c, head); err != nil {
		c.Fatal(err)
	}
	if binary.BigEndian.Uint32(head) != nbdReplyMagic || binary.BigEndian.Uint64(head[8:]) != c.cookie {
		c.Fatalf("an answer begins with %x", head)
	}
	errno := syscall.Errno(binary.BigEndian.Uint32(head[4:]))
	var got []byte
	if kind == nbdRead && errno == 0 {
		got = make([]byte, length)
		if _, err := io.ReadFull(c, got); err != nil {
			c.Fatal(err)
		}
	}
	return got, errno
}

// TestDisk reads and writes the disk of another machine as a network block device: what is read is
// in the file there, and what is written is afterwards. No data pass through the owner.
func TestDisk(t *testing.T) {
	n, d, path := onMemory(t, false)
	if d.Size != diskSize || d.ReadOnly {
		t.Errorf("the disk is %+v", d.disk)
	}
	c, ended := serve(t, d)
	file := func() []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	want := file()
	if got, errno := c.request(nbdRead, 0, diskSize, nil); errno != 0 || !bytes.Equal(got, want) {
		t.Errorf("the whole disk, which takes several requests, is read with other contents: %v", errno)
	}
	if got, errno := c.request(nbdRead, diskSize-512, 512, nil); errno != 0 || !bytes.Equal(got, want[diskSize-512:]) {
		t.Errorf("the last block is read with other contents: %v", errno)
	}
	data := bytes.Repeat([]byte("written"), 2*bufferSize/7)
	if _, errno := c.request(nbdWrite, 4096, len(data), data); errno != 0 {
		t.Error(errno)
	}
	if copy(want[4096:], data); !bytes.Equal(file(), want) {
		t.Error("the file is not what was written")
	}
	if bytes := n.Counters("owner").Bytes; bytes > 16<<10 {
		t.Errorf("%d bytes passed through the owner", bytes)
	}
	if bytes := n.Counters("unit").Bytes; bytes < diskSize+uint64(len(data)) {
		t.Errorf("only %d bytes passed through the I/O unit", bytes)
	}
	c.send(nbdDisconnect, 0, 0, nil)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestRefused expects an error for each request that cannot be carried out, and the next request to
// be carried out.
func TestRefused(t *testing.T) {
	_, d, path := onMemory(t, true)
	if !d.ReadOnly {
		t.Error("the requester does not know that the disk is read-only")
	}
	was, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := serve(t, d)
	for _, r := range []struct {
		name   string
		kind   uint16
		at     uint64
		length int
		data   []byte
		want   syscall.Errno
	}{
		{"a write to a disk that is read-only", nbdWrite, 0, 4, []byte("data"), syscall.EPERM},
		{"a read beyond the end", nbdRead, diskSize - 511, 512, nil, syscall.EPERM},
		{"a read far beyond the end", nbdRead, 1<<63 - 1, 512, nil, syscall.EIO},
		{"an unknown request", 77, 0, 0, nil, syscall.EINVAL},
		{"a read", nbdRead, diskSize - 512, 512, nil, 0},
	} {
		if _, errno := c.request(r.kind, r.at, r.length, r.data); errno != r.want {
			t.Errorf("%s: %v, want %v", r.name, errno, r.want)
		}
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, was) {
		t.Errorf("the file has changed: %v", err)
	}
}

// TestPolicy has requests with a good write to the first block and another transaction. It expects the
// owner to check both: nothing of a request is carried out if one is not for the disk.
func TestPolicy(t *testing.T) {
	const read, write, exchange = protocol.DirectedRead, protocol.DirectedWrite, protocol.DirectedExchange
	for _, c := range []struct {
		name     string
		readOnly bool
		second   protocol.DirectedOperation
		at       uint64
		denied   bool
	}{
		{"a read", false, read, diskSize - 512, false},
		{"a write", false, write, diskSize - 512, false},
		{"a read beyond the end", false, read, diskSize - 511, true},
		{"a write beyond the end", false, write, diskSize - 511, true},
		{"a read far beyond the end", false, read, 1<<63 - 513, true},
		{"an exchange", false, exchange, 512, true},
		{"a read, on a disk that is read-only", true, read, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, d, path := onMemory(t, c.readOnly)
			copy(d.mem, "written")
			second := directed.Transaction{Operation: c.second, Offset: c.at}
			if c.second != read {
				second.Source = whole(d.out, 512)
			}
			if c.second != write {
				second.Results = whole(d.in, 512)
			}
			err := d.peer.link.Do(t.Context(), directed.Request{Device: diskDevice, Transactions: []directed.Transaction{
				{Operation: write, Source: whole(d.out, 512)}, second,
			}})
			if c.denied && !errors.Is(err, &directed.StatusError{Status: protocol.DirectedDenied}) || !c.denied && err != nil {
				t.Errorf("got error %v", err)
			}
			b, err := os.ReadFile(path)
			if written := bytes.HasPrefix(b, []byte("written")); err != nil || written == c.denied {
				t.Errorf("the first block is written: %v, %v", written, err)
			}
		})
	}
}

// TestBrokenClient expects the end of the connection to a client that breaks the protocol.
func TestBrokenClient(t *testing.T) {
	c, ended := serve(t, nil)
	if _, err := c.Write(make([]byte, nbdRequestSize)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, errNBD) {
		t.Errorf("a magic number of 0: %v", err)
	}
	c, ended = serve(t, nil)
	c.send(nbdRead, 0, nbdMaxLength+1, nil)
	if err := <-ended; !errors.Is(err, errNBD) {
		t.Errorf("a read of too much: %v", err)
	}
}

// TestUsage expects each role to accept its own flags only.
func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		nil, {"what"}, {"unit"}, {"unit", "a", "b"}, {"unit", "-read-only", "a"}, {"requester", "-listen", ":1", "a"},
	} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	if o, err := parseOptions("owner", []string{"-read-only", "unit:1"}); err != nil || !o.readOnly || o.of != "unit:1" {
		t.Errorf("%+v, %v", o, err)
	}
}
