package vhostuser

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/splitnic/splitnic/internal/limit"
	"github.com/splitnic/splitnic/vnet"
)

// MaxPairs is how many pairs of rings a device can have.
const MaxPairs = 128

// Config is what a Device is made with.
type Config struct {
	Address  Address
	Pairs    int           // of rings; one for each queue of the device
	Offloads vnet.Offloads // that the front end is offered, at most
	Log      *slog.Logger
}

// Device is a virtio-net device behind a unix socket.
type Device struct {
	cfg    Config
	pairs  int
	offer  features
	queues []*Queue
	rings  []*vring

	shared
	lender *lender

	mu     sync.Mutex // held while rings change, and taken after theirs; guards what follows
	active int        // queues in use
	down   bool       // no frames pass
	status Status
	up     bool
	heard  chan struct{} // closed and made again when something has changed

	stop func()
	done chan struct{}
	log  limit.Log
}

// Status is what people want to know of a device.
type Status struct {
	Path     string   `json:"path"`
	Client   bool     `json:"client"`
	FrontEnd string   `json:"front_end,omitempty"` // who is connected, empty for nobody
	Features []string `json:"features,omitempty"`  // negotiated
	Rings    int      `json:"rings"`               // that are running
	MTU      int      `json:"mtu,omitempty"`       // that the front end wants; bytes
	// Connections is how many there were, and LastError why the last one that the front
	// end did not end itself has ended, or could not be had.
	Connections int    `json:"connections"`
	LastError   string `json:"last_error,omitempty"`

	ReadFrames    uint64 `json:"read_frames"`
	ReadBytes     uint64 `json:"read_bytes"`
	WrittenFrames uint64 `json:"written_frames"`
	WrittenBytes  uint64 `json:"written_bytes"`
	Dropped       uint64 `json:"dropped"`
	Refused       uint64 `json:"refused"` // of those dropped: that the front end has transmitted
	Calls         uint64 `json:"calls"`

	// Registered is how many bytes of the front end's memory frames are sent from without
	// a copy, and NotRegistered why not all of it, if that was wanted.
	Registered    int64  `json:"registered"`
	NotRegistered string `json:"not_registered,omitempty"`
}

// Queues are the device's. The slice is its own.
func (d *Device) Queues() []*Queue { return d.queues }

// wire divides the rings among the queues in use, and has everybody look. The caller
// holds mu.
func (d *Device) wire() error {
	var receiving []*vring
	running := 0
	reads := make([][]*vring, len(d.queues))
	for _, v := range d.rings {
		is := v.running.Load()
		switch {
		case v.transmits():
			if i := v.number / 2 % d.active; !d.down && (is || v.discards.Load()) {
				reads[i] = append(reads[i], v)
			}
		case is:
			receiving = append(receiving, v)
		}
		if is {
			running++
		}
	}
	var errs []error
	writers := make(map[*vring][]*waker)
	for i, q := range d.queues {
		q.in.forget()
		q.out.forget()
		q.reads.Store(&reads[i])
		for _, v := range reads[i] {
			errs = append(errs, q.in.hear(v.kick))
		}
		var to *vring
		if i < d.active && len(receiving) > 0 && !d.down {
			to = receiving[i%len(receiving)]
			errs = append(errs, q.out.hear(to.kick))
			writers[to] = append(writers[to], q.out)
		}
		q.writes.Store(to)
		q.in.raise()
		q.out.raise()
	}
	for v, wakers := range writers {
		v.writers.Store(&wakers)
	}
	d.status.Rings = running
	d.up = len(receiving) > 0
	d.changed()
	return errors.Join(errs...)
}

// changed tells those who watch. The caller holds mu.
func (d *Device) changed() {
	close(d.heard)
	d.heard = make(chan struct{})
}

// SetActive uses the first n queues only.
func (d *Device) SetActive(n int) error {
	if n < 1 || n > len(d.queues) {
		return fmt.Errorf("using %d queues of %s: it has %d", n, d.cfg.Address.Path, len(d.queues))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if n == d.active {
		return nil
	}
	d.active = n
	return d.wire()
}

// SetUp has frames pass, or none: those of the front end wait in its rings, and what is
// written is lost. They pass from the start.
func (d *Device) SetUp(up bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down == !up {
		return nil
	}
	d.down = !up
	return d.wire()
}

// Announce writes one frame, besides those of the queues. Anybody may call it.
func (d *Device) Announce(frame []byte) error {
	v := d.queues[0].writes.Load()
	if v == nil {
		return errDown
	}
	ops := []vnet.WriteOp{{Head: frame}}
	if v.write(ops, false) == 0 {
		return errAgain
	}
	return ops[0].Err
}

// SetOffloads says what frames may leave to others from now on. For what a front end
// leaves besides, and for what it does not take, there is software.
func (d *Device) SetOffloads(o vnet.Offloads) { d.granted.Store(uint32(o)) }

// Up reports whether a front end receives, and a channel that is closed when that, or
// anything else, may have changed.
func (d *Device) Up() (up bool, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.up, d.heard
}

// lendTime is how long a front end waits at most until what it has lent is back: longer
// than a session with a peer that is dead lasts.
const lendTime = 3 * time.Second

// errHeld is for a front end whose frames are not sent within lendTime.
var errHeld = fmt.Errorf("buffers of the front end are still being sent after %v", lendTime)

// recall has all that was lent of m come back, and nothing be lent until recalled is
// cleared.
func (d *Device) recall(m *memory) error {
	d.recalled.Store(true)
	for _, v := range d.rings {
		v.mu.Lock()   // until a burst is over that did not know
		v.mu.Unlock() //nolint:staticcheck // nothing is to be done
	}
	if m.shared.Lend(0) == 0 {
		return nil
	}
	for _, q := range d.queues {
		q.lendMu.Lock()
		if q.recall != nil {
			q.recall()
		}
		q.lendMu.Unlock()
	}
	late := time.NewTimer(lendTime)
	defer late.Stop()
	for m.shared.Lend(0) != 0 {
		select {
		case <-d.lender.returned:
		case <-late.C:
			return errHeld
		}
	}
	return nil
}

// setGuestMTU is told which MTU the front end wants to use.
func (d *Device) setGuestMTU(mtu uint64) error {
	if mtu < 68 || mtu > vnet.MaxPacket {
		return errRefused
	}
	d.note(func(s *Status) { s.MTU = int(mtu) })
	return nil
}

func (d *Device) note(fn func(*Status)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fn(&d.status)
}

// Status is a snapshot.
func (d *Device) Status() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.status
	s.Registered, s.NotRegistered = d.lender.status()
	for _, v := range d.rings {
		frames, bytes := &s.WrittenFrames, &s.WrittenBytes
		if v.transmits() {
			frames, bytes = &s.ReadFrames, &s.ReadBytes
		}
		*frames += v.count.frames.Load()
		*bytes += v.count.bytes.Load()
		s.Dropped += v.count.dropped.Load()
		if v.transmits() {
			s.Refused += v.count.dropped.Load()
		}
		s.Calls += v.count.calls.Load()
	}
	return s
}

// errRefused is for what a front end may ask for and does not get.
var errRefused = errors.New("refused")
