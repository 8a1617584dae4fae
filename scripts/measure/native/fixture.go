package native

import (
	"context"

	"github.com/splitnic/splitnic/scripts/measure/testbed"
)

// fixture is a subject in its topology.
type fixture struct {
	subject
	*topology
	process *process // nil if the subject has no separate process
}

// newFixture makes a fixture, which ends with b.
func newFixture(ctx context.Context, b *testbed.Bed, s subject) (*fixture, error) {
	r := &fixture{subject: s}
	var err error
	if r.topology, err = newTopology(b, s); err != nil {
		return nil, err
	}
	if s.process() {
		if r.process, err = startProcess(s, r.topology); err != nil {
			return nil, err
		}
		b.Later(r.process.close)
	}
	return r, r.configure(ctx)
}
