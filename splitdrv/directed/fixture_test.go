package directed

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/verbs"
)

// The units in a test, each of which has its own device.
const (
	requesterSide = iota
	ownerSide
	unitSide
	sides
)

// ground has three devices on one fabric, and a counter of the bytes of each device.
type ground struct {
	devices [sides]fabric.Device
	wire    func(side int) uint64 // returns the number of bytes sent and received by a device
	timing  fabric.Timing
	network *fabrictest.Network // nil if the fabric is not in memory
}

// fabricOf is a function that makes the ground of a test.
type fabricOf func(t *testing.T) *ground

// inMemory makes three devices on a fabric in memory.
func inMemory(t *testing.T) *ground { return grounded(t, fabrictest.New()) }

// grounded makes three devices on a network.
func grounded(t *testing.T, n *fabrictest.Network) *ground {
	fabrictest.NoLeaks(t, n)
	g := &ground{network: n}
	names := [sides]string{"requester", "owner", "unit"}
	for i, name := range names {
		g.devices[i] = n.Device(name)
	}
	// The fabric counts bytes at the device that sends or reads them. The owner's counter therefore
	// has only bytes that the owner's device has sent or read.
	g.wire = func(side int) uint64 { return n.Counters(names[side]).Bytes }
	return g
}

// onSoftRoCE opens three Soft-RoCE devices through libibverbs. A bridge connects them.
func onSoftRoCE(t *testing.T) *ground {
	names := testenv.NeedRDMA(t, sides)
	g := &ground{timing: fabric.Timing{Timeout: 18}} // long enough for emulated machines
	for i := range g.devices {
		d, err := verbs.Open(names[i])
		if err != nil {
			t.Fatal(err)
		}
		g.devices[i] = d
	}
	g.wire = func(side int) uint64 {
		t.Helper()
		port := filepath.Join("/sys/class/infiniband", names[side], "ports/1/gid_attrs/ndevs/0")
		link, err := os.ReadFile(port)
		if err != nil {
			t.Fatal(err)
		}
		var sum uint64
		for _, counter := range []string{"rx_bytes", "tx_bytes"} {
			b, err := os.ReadFile(filepath.Join("/sys/class/net", strings.TrimSpace(string(link)), "statistics", counter))
			if err != nil {
				t.Fatal(err)
			}
			n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		return sum
	}
	return g
}

// tapeDrive is an I/O device in memory.
type tapeDrive struct {
	mu            sync.Mutex
	mem           []byte
	reads, writes int
}

func newDrive(size int) *tapeDrive {
	d := &tapeDrive{mem: make([]byte, size)}
	pattern(d.mem, 1)
	return d
}

func pattern(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + i>>9*13 + seed*31 + 1)
	}
}

// ReadAt implements io.ReaderAt.
func (d *tapeDrive) ReadAt(b []byte, at int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads++
	if at+int64(len(b)) > int64(len(d.mem)) {
		return 0, fmt.Errorf("%d bytes at %d of %d", len(b), at, len(d.mem))
	}
	return copy(b, d.mem[at:]), nil
}

// WriteAt implements io.WriterAt.
func (d *tapeDrive) WriteAt(b []byte, at int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes++
	if at+int64(len(b)) > int64(len(d.mem)) {
		return 0, fmt.Errorf("%d bytes at %d of %d", len(b), at, len(d.mem))
	}
	return copy(d.mem[at:], b), nil
}

func (d *tapeDrive) holds(at int, want []byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return bytes.Equal(d.mem[at:at+len(want)], want)
}

// The platform identifiers of the units, made in the same way as by their sessions: from a key
// each, and from this run.
var platforms = func() (ids [sides]protocol.Platform) {
	for i := range ids {
		trust, err := session.Insecure() // has its own key
		if err != nil {
			panic(err)
		}
		ids[i] = trust.Platform()
	}
	return ids
}()

// tapeDevice is the owner's number of the I/O unit's device.
const tapeDevice = 7

const driveSize = 4 << 20

// fixture has three units: a requester, an owner, and an I/O unit with a device.
type fixture struct {
	*testing.T
	*ground
	nodes [sides]*Node
	drive *tapeDrive

	toOwner   *Link // the requester's link to the owner
	requester *Link // the owner's link to the requester
	unit      *Link // the owner's link to the I/O unit
	owner     *Link // the I/O unit's link to the owner

	mu    sync.Mutex
	allow func(protocol.Platform, *protocol.DirectedRequest) bool
}

func newFixture(t *testing.T, on fabricOf, change ...func(side int, c *Config)) *fixture {
	t.Helper()
	r := &fixture{T: t, ground: on(t), drive: newDrive(driveSize)}
	for i, d := range r.devices {
		cfg := Config{Device: d, Platform: platforms[i], Timing: r.timing}
		switch i {
		case ownerSide:
			cfg.Allow = func(p protocol.Platform, q *protocol.DirectedRequest) bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.allow == nil || r.allow(p, q)
			}
		case unitSide:
			cfg.Storage = map[uint32]Storage{tapeDevice: r.drive}
		}
		for _, c := range change {
			c(i, &cfg)
		}
		r.nodes[i] = New(cfg)
	}
	r.toOwner, r.requester = r.link(requesterSide, ownerSide, false)
	r.owner, r.unit = r.link(unitSide, ownerSide, true)
	r.nodes[ownerSide].Assign(tapeDevice, r.unit)
	t.Cleanup(func() {
		for _, l := range []*Link{r.toOwner, r.requester, r.unit, r.owner} {
			r.check(l.Close())
		}
		for i, n := range r.nodes {
			r.check(n.Close())
			r.check(r.devices[i].Close())
		}
	})
	return r
}

// link connects two nodes, and returns the link of each. If directs is set, node b is the owner
// that directs node a.
func (r *fixture) link(a, b int, directs bool) (of, to *Link) {
	r.Helper()
	of, err := r.nodes[a].NewLink()
	r.check(err)
	to, err = r.nodes[b].NewLink()
	r.check(err)
	of.Owner = directs
	r.check(of.Start(to.Address(), platforms[b]))
	r.check(to.Start(of.Address(), platforms[a]))
	return of, to
}

func (r *fixture) check(err error) {
	r.Helper()
	if err != nil {
		r.Error(err)
	}
}

// mapped returns memory outside the Go heap, which is valid until the end of the test.
func (r *fixture) mapped(size int) []byte {
	r.Helper()
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { unix.Munmap(mem) })
	return mem
}

// memory returns memory that is registered on a link.
func (r *fixture) memory(l *Link, size int, d Direction) ([]byte, *Memory) {
	r.Helper()
	mem := r.mapped(size)
	m, err := l.Register(mem, d)
	if err != nil {
		r.Fatal(err)
	}
	return mem, m
}

// direction returns that of the data of a read or write.
func direction(op protocol.DirectedOperation) Direction {
	if op == protocol.DirectedRead {
		return Result
	}
	return Source
}

// one returns a request for one read or write.
func one(op protocol.DirectedOperation, device uint32, offset uint64, list []protocol.ListElement) Request {
	t := Transaction{Operation: op, Offset: offset}
	if direction(op) == Result {
		t.Results = list
	} else {
		t.Source = list
	}
	return Request{device, []Transaction{t}}
}

// message returns the message for one read or write, with a list in one sequence.
func message(op protocol.DirectedOperation, list []protocol.ListElement) protocol.DirectedRequest {
	return chained(op, protocol.AttributesOf(list), nil, list)
}

// chained is message for a list with these attributes, which has further sequences.
func chained(
	op protocol.DirectedOperation, a protocol.ListAttributes, chains []protocol.Fragment, list []protocol.ListElement,
) protocol.DirectedRequest {
	t := protocol.DirectedTransaction{Operation: op}
	buffers := &t.Source
	if direction(op) == Result {
		buffers = &t.Results
	}
	buffers.Count, buffers.Bytes = uint16(a.Buffers), a.Bytes
	return protocol.DirectedRequest{
		Device: tapeDevice, Transactions: []protocol.DirectedTransaction{t},
		List: protocol.AppendListSequence(nil, &a, chains, list),
	}
}

// raw sends a request as it is, and returns the status of the reply.
func (r *fixture) raw(l *Link, q protocol.DirectedRequest) protocol.DirectedStatus {
	r.Helper()
	l.waits(1)
	defer l.waits(-1)
	b, err := l.call(r.Context(), l.asking, func(transaction uint64) []byte {
		q.TransactionContext = transaction
		return protocol.AppendDirectedRequest(nil, q)
	})
	if err != nil {
		r.Fatal(err)
	}
	reply, err := protocol.DecodeDirectedReply(b)
	if err != nil {
		r.Fatal(err)
	}
	return reply.Status
}

// status expects that err is the result of a request with the status want.
func (r *fixture) status(err error, want protocol.DirectedStatus) {
	r.Helper()
	if want == protocol.DirectedOK {
		if err != nil {
			r.Fatal(err)
		}
		return
	}
	var e *StatusError
	if !asStatus(err, &e) || e.Status != want {
		r.Fatalf("%v, want %v", err, want)
	}
}
