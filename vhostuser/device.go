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

// maxPairs is the largest number of pairs of rings of a device.
const maxPairs = 128

// Config is the configuration of a Device.
type Config struct {
	Address  Address
	Pairs    int           // pairs of rings, one for each queue of the device
	Offloads vnet.Offloads // largest set of offloads offered to the front end
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

	mu     sync.Mutex // held while rings change, and taken after the locks of the rings; guards the following fields
	active int        // queues in use
	down   bool       // no frames pass
	status Status
	up     bool
	heard  chan struct{} // closed and replaced at each change

	stop func()
	done chan struct{}
	log  limit.Log
}

// Status is the status of a device.
type Status struct {
	Path     string   `json:"path"`
	Client   bool     `json:"client"`
	FrontEnd string   `json:"front_end,omitempty"` // connected process, empty if there is none
	Features []string `json:"features,omitempty"`  // negotiated
	Rings    int      `json:"rings"`               // number of running rings
	MTU      int      `json:"mtu,omitempty"`       // requested by the front end, in bytes
	// Connections is the number of connections so far. LastError is the reason for which the
	// last connection that the front end did not end itself has ended or failed.
	Connections int    `json:"connections"`
	LastError   string `json:"last_error,omitempty"`

	ReadFrames    uint64 `json:"read_frames"`
	ReadBytes     uint64 `json:"read_bytes"`
	WrittenFrames uint64 `json:"written_frames"`
	WrittenBytes  uint64 `json:"written_bytes"`
	Dropped       uint64 `json:"dropped"`
	Refused       uint64 `json:"refused"` // dropped frames that the front end has transmitted
	Calls         uint64 `json:"calls"`

	// Registered is the number of bytes of the front end's memory from which frames are sent
	// without a copy. NotRegistered is the reason if not all memory could be registered.
	Registered    int64  `json:"registered"`
	NotRegistered string `json:"not_registered,omitempty"`
}

// Queues returns the queues of the device. The caller must not change the slice.
func (d *Device) Queues() []*Queue { return d.queues }

// wire distributes the rings among the queues in use, and wakes their senders and receivers. mu is
// held.
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

// changed reports a change to the callers of Up. mu is held.
func (d *Device) changed() {
	close(d.heard)
	d.heard = make(chan struct{})
}

// SetActive sets the number of queues in use. These are the first n.
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

// SetUp enables or disables the transfer of frames. While it is disabled, frames of the front end
// wait in its rings, and frames that are written are lost. It is enabled at the start.
func (d *Device) SetUp(up bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down == !up {
		return nil
	}
	d.down = !up
	return d.wire()
}

// Announce writes one frame, in addition to those of the queues. Any goroutine may call it.
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

// SetOffloads sets the offloads that frames may leave to the I/O unit. Software carries out the other
// offloads of the front end's frames, and those that the front end does not support.
func (d *Device) SetOffloads(o vnet.Offloads) { d.granted.Store(uint32(o)) }

// Up reports whether a front end receives. The channel is closed when this, or anything else, may
// have changed.
func (d *Device) Up() (up bool, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.up, d.heard
}

// lendTime bounds the time that a front end waits for the return of lent buffers. It is longer than
// the time after which a session with a dead peer ends.
const lendTime = 3 * time.Second

// errHeld is returned if lent frames are not sent within lendTime.
var errHeld = fmt.Errorf("buffers of the front end are still being sent after %v", lendTime)

// recall waits until all lent buffers of m are returned. No more are lent until recalled is cleared.
func (d *Device) recall(m *memory) error {
	d.recalled.Store(true)
	for _, v := range d.rings {
		v.mu.Lock()   // waits for a burst that began before recalled was set
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

// setGuestMTU records the MTU that the front end requests.
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

// Status returns the status of the device.
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

// errRefused is returned for a valid request that is refused.
var errRefused = errors.New("refused")
