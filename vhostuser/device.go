package vhostuser

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
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

	granted atomic.Uint32 // offloads that others take over
	failed  chan error    // of capacity one: why the connection is to end

	mu     sync.Mutex // held while rings change; guards what follows
	active int        // queues in use
	down   bool       // no frames pass
	status Status
	up     bool
	heard  chan struct{} // closed and made again when something has changed
	memory *vnet.Memory  // of the front end; nil if there is none

	lendFrom uint64        // bytes that a frame has which is lent; tests have shorter ones be lent
	recalled atomic.Bool   // nothing is lent
	returned chan struct{} // of capacity one: all that was lent is back

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

// Open makes a device. A server's socket is there when it returns.
func Open(cfg Config) (*Device, error) {
	if cfg.Pairs < 1 || cfg.Pairs > MaxPairs {
		return nil, fmt.Errorf("vhost-user: %d pairs of rings; there can be 1 to %d", cfg.Pairs, MaxPairs)
	}
	d := &Device{
		cfg: cfg, pairs: cfg.Pairs, offer: offered(cfg.Offloads, cfg.Pairs), active: cfg.Pairs,
		failed: make(chan error, 1), heard: make(chan struct{}), lendFrom: lendFrom,
		returned: make(chan struct{}, 1), done: make(chan struct{}),
	}
	d.granted.Store(uint32(cfg.Offloads))
	d.status.Path, d.status.Client = cfg.Address.Path, cfg.Address.Client
	for i := range cfg.Pairs {
		q, err := newQueue(d)
		if err != nil {
			return nil, errors.Join(err, d.closeQueues())
		}
		d.queues = append(d.queues, q)
		for side := range 2 {
			d.rings = append(d.rings, &vring{number: 2*i + side, d: d, kick: -1, call: -1})
		}
	}
	next, closeSocket, err := cfg.Address.open()
	if err != nil {
		return nil, errors.Join(err, d.closeQueues())
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = func() {
		cancel()
		closeSocket()
	}
	go d.run(ctx, next)
	return d, nil
}

// Queues are the device's. The slice is its own.
func (d *Device) Queues() []*Queue { return d.queues }

// Close ends the connection and removes the socket. Nobody may use the queues any more.
func (d *Device) Close() error {
	d.stop()
	<-d.done
	return d.closeQueues()
}

func (d *Device) closeQueues() error {
	var errs []error
	for _, q := range d.queues {
		errs = append(errs, q.close())
	}
	d.queues = nil
	return errors.Join(errs...)
}

const (
	// pauses between a connection that failed and the next one.
	minPause = 50 * time.Millisecond
	maxPause = time.Second
)

// run serves one front end after the other.
func (d *Device) run(ctx context.Context, next func(context.Context) (*net.UnixConn, error)) {
	defer close(d.done)
	pause, last := minPause, ""
	for ctx.Err() == nil {
		c, err := next(ctx)
		if err == nil {
			err = d.serve(ctx, c)
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			pause, last = minPause, ""
		} else {
			d.note(func(s *Status) { s.LastError = err.Error() })
			if err.Error() != last { // once: it may last
				d.log.Log(d.cfg.Log, slog.LevelWarn, "no vhost-user front end", "socket", d.cfg.Address.Path, "error", err)
			}
			last = err.Error()
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		if err != nil {
			pause = min(2*pause, maxPause)
		}
	}
}

// fail ends the connection for that reason.
func (d *Device) fail(err error) {
	select {
	case d.failed <- err:
	default: // there was one before
	}
}

// wire divides the rings among the queues in use, and has everybody look. The caller
// holds mu.
func (d *Device) wire() error {
	var receiving []*vring
	running := 0
	reads := make([][]*vring, len(d.queues))
	for _, v := range d.rings {
		switch {
		case !v.running.Load():
			continue
		case v.transmits():
			if i := v.number / 2 % d.active; !d.down {
				reads[i] = append(reads[i], v)
			}
		default:
			receiving = append(receiving, v)
		}
		running++
	}
	var errs []error
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
		}
		q.writes.Store(to)
		q.in.raise()
		q.out.raise()
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
	d.mu.Lock()
	defer d.mu.Unlock()
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

func (d *Device) allowed() vnet.Offloads { return vnet.Offloads(d.granted.Load()) }

// Up reports whether a front end receives, and a channel that is closed when that, or
// anything else, may have changed.
func (d *Device) Up() (up bool, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.up, d.heard
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
