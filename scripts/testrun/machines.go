package main

import (
	"context"
	"errors"
	"runtime"
)

// runMachines runs the tests with two machines. They boot their guests
// themselves, also where the kernel has Soft-RoCE: one kernel is one machine.
func runMachines(ctx context.Context, r *runner) error { return r.withGuests(ctx, machinesPrefix) }

// runFaults runs more of them.
func runFaults(ctx context.Context, r *runner) error { return r.withGuests(ctx, faultsPrefix) }

func (r *runner) withGuests(ctx context.Context, prefix string) error {
	packages := r.pick(prefix)
	if len(packages) > 0 && runtime.GOARCH != "amd64" {
		return errors.New("the harness has guests on amd64 only; name the other layers to do without")
	}
	for _, p := range packages {
		if err := r.goTest(ctx, []string{"SPLITNIC_REQUIRE=machines"}, "-timeout=40m", "-run", exactly(p.tests), p.path); err != nil {
			return err
		}
		r.unseen(p)
	}
	return nil
}
