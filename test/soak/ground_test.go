package soak

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// patience bounds the wait for each expected event. It is long because an emulated machine can
// stand still for seconds.
const patience = 2 * time.Minute

// ground is the environment of the cycles: the devices of a fabric, and the listener of an I/O unit
// that is open during all cycles.
type ground struct {
	net      *fabrictest.Network // nil on RDMA devices
	open     func(side) (fabric.Device, error)
	timing   fabric.Timing // of all queue pairs
	keys     [2]*session.Security
	ln       *session.Listener
	rejected chan error // the reasons why the listener has rejected connections
	unit     *device    // stays open from one session to the next, as in a daemon
}

// names of the devices in memory.
var names = [...]string{host: "host", unit: "unit"}

// newGround returns a ground that listens. net is nil if open opens RDMA devices.
func newGround(t *testing.T, net *fabrictest.Network, open func(side) (fabric.Device, error)) *ground {
	t.Helper()
	g := &ground{net: net, open: open, rejected: make(chan error, 64)}
	if err := g.makeKeys(); err != nil {
		t.Fatal(err)
	}
	if err := g.reopen(); err != nil {
		t.Fatal(err)
	}
	var err error
	g.ln, err = session.Listen("127.0.0.1:0", session.ServerConfig{
		Security: g.keys[unit], HandshakeTimeout: patience, PeerTimeout: patience, Rejected: g.reject,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.ln.Close(), g.unit.Close()); err != nil {
			t.Error(err)
		}
	})
	return g
}

func newMemory(t *testing.T) *ground {
	t.Helper()
	// Time-outs are a hundredth of real ones: a dead peer is noticed after 5 ms.
	n := fabrictest.New(fabrictest.WithTimeScale(0.01))
	fabrictest.NoLeaks(t, n)
	return newGround(t, n, func(s side) (fabric.Device, error) { return n.Device(names[s]), nil })
}

func (g *ground) reject(_ net.Addr, err error) { g.rejected <- err }

// unexpected returns an error if the listener has rejected a connection that no cycle expects to be
// rejected.
func (g *ground) unexpected() error {
	select {
	case err := <-g.rejected:
		return fmt.Errorf("the listener turned somebody away: %w", err)
	default:
		return nil
	}
}

// makeKeys makes keys for two sides that trust each other.
func (g *ground) makeKeys() error {
	var keys [2]*session.Key
	for s := range keys {
		var err error
		if keys[s], err = session.GenerateKey(); err != nil {
			return err
		}
	}
	for s := range keys {
		trust := &session.Trust{}
		if err := trust.Add(keys[1-s].Fingerprint().String()); err != nil {
			return err
		}
		var err error
		if g.keys[s], err = session.NewSecurity(keys[s], "", trust); err != nil {
			return err
		}
	}
	return nil
}

// reopen opens the I/O unit's device, which may have been killed.
func (g *ground) reopen() error {
	if g.unit != nil {
		if err := g.unit.Close(); err != nil {
			return fmt.Errorf("close the I/O unit's device: %w", err)
		}
	}
	dev, err := g.open(unit)
	if err != nil {
		return err
	}
	g.unit = &device{Device: dev}
	return nil
}

// device is a fabric device that keeps a list of its queue pairs, so that they can be made to fail,
// and counts its memory windows.
type device struct {
	fabric.Device
	loose   bool         // it reports that it does not enforce the bounds of windows
	windows atomic.Int64 // number of open windows
	spoils  *spoiling    // the frame that the next session's queue pairs spoil, nil for none
	mu      sync.Mutex
	qps     []*queuePair // of the latest session
}

// Limits implements fabric.Device.
func (d *device) Limits() fabric.Limits {
	l := d.Device.Limits()
	l.WindowBounds = l.WindowBounds && !d.loose
	return l
}

// NewDomain implements fabric.Device.
func (d *device) NewDomain() (fabric.Domain, error) {
	dom, err := d.Device.NewDomain()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.qps = nil
	return &domain{Domain: dom, d: d}, err
}

// fail makes one of the latest session's queue pairs fail.
func (d *device) fail(i int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	// A queue pair that is closed already has failed in another way.
	if err := d.qps[i%len(d.qps)].Fail(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// refuse makes the latest session's queue pairs refuse all further sends.
func (d *device) refuse() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, qp := range d.qps {
		qp.refuses.Store(true)
	}
}

// queuePair is a queue pair of the fabric that can refuse sends, or spoil a frame.
type queuePair struct {
	fabric.QP
	refuses atomic.Bool
	spoils  *spoiling
}

// spoiling identifies a frame that is to violate the protocol. The port cannot send such a frame: a
// session does not forward it.
type spoiling struct {
	stream stream
	number uint64
}

// spoil spoils the frame if it is in the data of these work requests. A piece of a transfer may
// have several frames.
func (s *spoiling) spoil(wrs []fabric.SendWR) {
	size := s.stream.length(s.number)
	begins := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, s.number), uint32(s.stream.key))
	for i := range wrs {
		at := uintptr(wrs[i].Addr)
		piece := unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), wrs[i].Len)
		if f := bytes.Index(piece, begins) - seqAt; f >= 0 && f+size <= len(piece) {
			spoil(piece[f:][:size])
		}
	}
}

var errRefused = errors.New("refused on purpose")

// PostSend implements fabric.QP.
func (q *queuePair) PostSend(wrs []fabric.SendWR) (int, error) {
	if q.refuses.Load() {
		return 0, errRefused
	}
	if q.spoils != nil {
		q.spoils.spoil(wrs)
	}
	return q.QP.PostSend(wrs)
}

// Bind implements fabric.QP.
func (q *queuePair) Bind(b fabric.BindWR) (uint32, error) {
	b.Window = b.Window.(*window).Window
	return q.QP.Bind(b)
}

// BindSend implements fabric.QP.
func (q *queuePair) BindSend(b fabric.BindWR, send uint64, flags fabric.Flags) (uint32, error) {
	b.Window = b.Window.(*window).Window
	return q.QP.BindSend(b, send, flags)
}

// Unbind implements fabric.QP.
func (q *queuePair) Unbind(w fabric.Window, id uint64, flags fabric.Flags) error {
	return q.QP.Unbind(w.(*window).Window, id, flags)
}

type domain struct {
	fabric.Domain
	d       *device
	windows atomic.Int64 // number of open windows
}

// Close implements fabric.Domain. It closes all open windows.
func (d *domain) Close() error {
	if err := d.Domain.Close(); err != nil {
		return err
	}
	d.d.windows.Add(-d.windows.Swap(0))
	return nil
}

// NewWindow implements fabric.Domain.
func (d *domain) NewWindow() (fabric.Window, error) {
	w, err := d.Domain.NewWindow()
	if err != nil {
		return nil, err
	}
	d.count(1)
	return &window{Window: w, dom: d}, nil
}

func (d *domain) count(n int64) {
	d.windows.Add(n)
	d.d.windows.Add(n)
}

// window is a memory window of the fabric, which is counted until it is closed.
type window struct {
	fabric.Window
	dom  *domain
	once sync.Once
}

// Close implements fabric.Window.
func (w *window) Close() error {
	if err := w.Window.Close(); err != nil {
		return err
	}
	w.once.Do(func() { w.dom.count(-1) })
	return nil
}

// NewQP implements fabric.Domain.
func (d *domain) NewQP(c fabric.QPConfig) (fabric.QP, error) {
	qp, err := d.Domain.NewQP(c)
	if err != nil {
		return nil, err
	}
	q := &queuePair{QP: qp, spoils: d.d.spoils}
	d.d.mu.Lock()
	defer d.d.mu.Unlock()
	d.d.qps = append(d.d.qps, q)
	return q, nil
}
