// Package bench measures the messaging layer between two RDMA devices, or two
// ports of the fabric in memory, without any netdevice: frames come from
// nowhere and go nowhere, so that what is left is the cost of the layer.
package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// Config says what to measure.
type Config struct {
	From, To fabric.Device
	Mode     protocol.Mode
	Size     int // bytes in each message, virtio_net_hdr included
	Queues   int
	Messages uint64 // to time, over all queues
	WarmUp   uint64 // to send before
	// Messaging is the template for both sides.
	Messaging messaging.Config
}

// Result is one measurement.
type Result struct {
	Mode         protocol.Mode `json:"mode"`
	Size         int           `json:"size"`
	Queues       int           `json:"queues"`
	Messages     uint64        `json:"messages"`
	Seconds      float64       `json:"seconds"`
	MiBPerSecond float64       `json:"mib_per_second"`
	MessageRate  float64       `json:"messages_per_second"`
}

// Run sends messages one way and times them at the receiver.
func Run(ctx context.Context, cfg Config) (Result, error) {
	if cfg.Size < vnet.MinFrame || cfg.Size > protocol.MaxImmLength {
		return Result{}, fmt.Errorf("bench: messages of %d bytes, must be %d to %d", cfg.Size, vnet.MinFrame, protocol.MaxImmLength)
	}
	mcfg := cfg.Messaging
	mcfg.Queues = cfg.Queues
	mcfg.MTU = vnet.MaxFrame // nothing is to be dropped for its size
	if mcfg.Pools == nil {
		mcfg.Pools = messaging.DefaultPools(protocol.ModeImm, 1500)
	}
	var conns [2]*messaging.Conn
	for i, dev := range []fabric.Device{cfg.From, cfg.To} {
		mcfg.Device = dev
		c, err := messaging.New(mcfg)
		if err != nil {
			return Result{}, err
		}
		defer c.Close()
		conns[i] = c
	}
	from, to := conns[0], conns[1]
	if err := from.Connect(to.Addresses(), to.ControlReceives()); err != nil {
		return Result{}, err
	}
	if err := to.Connect(from.Addresses(), from.ControlReceives()); err != nil {
		return Result{}, err
	}
	meter := &meter{warmUp: cfg.WarmUp, messages: cfg.Messages, done: make(chan struct{})}
	var sources, sinks []messaging.Port
	for range max(cfg.Queues, 1) {
		source, err := newSource(cfg.Size)
		if err != nil {
			return Result{}, err
		}
		defer source.close()
		sources = append(sources, source)
		sink, err := newSink(meter)
		if err != nil {
			return Result{}, err
		}
		defer sink.close()
		sinks = append(sinks, sink)
	}
	// Closed before the ports, which they use, are.
	defer from.Close()
	defer to.Close()
	if err := to.Start(sinks); err != nil {
		return Result{}, err
	}
	if err := from.Start(sources); err != nil {
		return Result{}, err
	}
	select {
	case <-meter.done:
	case <-ctx.Done():
		return Result{}, fmt.Errorf("bench: %d of %d messages: %w", meter.count.Load(), cfg.WarmUp+cfg.Messages, context.Cause(ctx))
	case <-from.Done():
		return Result{}, errors.Join(errors.New("bench: the sending side failed"), from.Err())
	case <-to.Done():
		return Result{}, errors.Join(errors.New("bench: the receiving side failed"), to.Err())
	}
	seconds := meter.end.Sub(meter.begin).Seconds()
	return Result{
		Mode: cfg.Mode, Size: cfg.Size, Queues: max(cfg.Queues, 1), Messages: cfg.Messages, Seconds: seconds,
		MiBPerSecond: float64(cfg.Messages) * float64(cfg.Size) / seconds / (1 << 20),
		MessageRate:  float64(cfg.Messages) / seconds,
	}, nil
}

// meter notes when the first and the last of the messages to time arrived.
type meter struct {
	warmUp, messages uint64
	count            atomic.Uint64
	begin, end       time.Time
	done             chan struct{}
}

func (m *meter) tick() {
	switch m.count.Add(1) {
	case max(m.warmUp, 1):
		m.begin = time.Now()
	case max(m.warmUp, 1) + m.messages:
		m.end = time.Now()
		close(m.done)
	}
}

// source is a port that always has a frame.
type source struct {
	fd   int // an eventfd that stays readable
	size int
}

func newSource(size int) (*source, error) {
	fd, err := unix.Eventfd(1, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("bench: eventfd: %w", err)
	}
	return &source{fd: fd, size: size}, nil
}

func (s *source) FD() int { return s.fd }

// ReadFrame leaves in the slot what is there, as a device that writes into it
// would, but for the header: all zero is a frame without offloads.
func (s *source) ReadFrame(slot []byte) ([]byte, error) {
	clear(slot[:vnet.MinFrame])
	return slot[:s.size], nil
}

func (s *source) WriteFrame([]byte) error { return nil }

func (s *source) close() { unix.Close(s.fd) }

// sink is a port that never has a frame and counts those it is given.
type sink struct {
	fd    int // an eventfd that is never readable
	meter *meter
}

func newSink(m *meter) (*sink, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("bench: eventfd: %w", err)
	}
	return &sink{fd: fd, meter: m}, nil
}

func (s *sink) FD() int { return s.fd }

func (s *sink) ReadFrame([]byte) ([]byte, error) { return nil, unix.EAGAIN }

func (s *sink) WriteFrame([]byte) error {
	s.meter.tick()
	return nil
}

func (s *sink) close() { unix.Close(s.fd) }
