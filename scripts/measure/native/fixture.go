package native

import (
	"context"
	"errors"
	"fmt"
)

// fixture is a subject in its topology.
type fixture struct {
	subject  subject
	topology *topology
	child    *child // nil if the subject has no separate process
}

func newFixture(ctx context.Context, prefix string, s subject) (r *fixture, err error) {
	r = &fixture{subject: s}
	if r.topology, err = newTopology(prefix, s); err != nil {
		return nil, err
	}
	if s.process() {
		if r.child, err = startChild(ctx, s, r.topology); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", s, err), r.close())
		}
	}
	if err := r.topology.configure(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", s, err), r.close())
	}
	return r, nil
}

func (r *fixture) close() error {
	var err error
	if r.child != nil {
		err = r.child.close()
	}
	return errors.Join(err, r.topology.close())
}
