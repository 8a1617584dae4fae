package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// Local measures with both ends in this process.
type Local struct {
	From, To fabric.Device // may be the same
	// Messaging is the template for both ends. A Spec replaces some of its fields.
	Messaging messaging.Config
	// Watch, if set, is called about once a second while a measurement runs.
	Watch func(Progress)
}

// Measure carries out one measurement.
func (l *Local) Measure(ctx context.Context, s Spec) (r Result, err error) {
	if err := s.Check(); err != nil {
		return Result{}, err
	}
	var secret [seal.SecretSize]byte
	rand.Read(secret[:]) // never fails
	from, err := l.end(s, l.From, secret, true)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, from.close()) }()
	to, err := l.end(s, l.To, secret, false)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	if err := from.conn.Connect(to.conn.Addresses(), to.conn.ControlReceives()); err != nil {
		return Result{}, err
	}
	if err := to.conn.Connect(from.conn.Addresses(), from.conn.ControlReceives()); err != nil {
		return Result{}, err
	}
	if err := errors.Join(to.start(nil), from.start(l.Watch)); err != nil {
		return Result{}, err
	}
	from.gone = to.conn.Done()
	from.why = func() error { return fmt.Errorf("the receiving end: %w", to.conn.Err()) }
	if err := from.wait(ctx); err != nil {
		return Result{}, err
	}
	return from.result(formLocal, l.From.Name()), nil
}

func (l *Local) end(s Spec, d fabric.Device, secret [seal.SecretSize]byte, initiator bool) (_ *end, err error) {
	c := l.Messaging
	c.Device = d
	if c.Keys, err = s.keys(func() ([seal.SecretSize]byte, error) { return secret, nil }, initiator); err != nil {
		return nil, err
	}
	return newEnd(s, c, initiator)
}
