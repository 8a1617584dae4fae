package vhostuser

import (
	"errors"
	"slices"
)

// setTable replaces all memory by the regions of a table.
func (f *frontEnd) setTable(m *message) error {
	regions := m.regions()
	for i := range regions {
		if err := regions[i].mapRegion(m.fds[i]); err != nil {
			unmapAll(regions[:i])
			return err
		}
	}
	return f.setMemory(regions, regions)
}

func unmapAll(regions []region) {
	for i := range regions {
		_ = regions[i].unmap()
	}
}

// addRegion adds a region. The region may exist already: QEMU 7.2 has a front end for each pair of
// rings, and each adds all regions.
func (f *frontEnd) addRegion(m *message) error {
	regions := m.regions()
	r := &regions[0]
	if err := r.mapRegion(m.fds[0]); err != nil {
		return err
	}
	if slices.ContainsFunc(f.memory.regions, func(o region) bool { return o.sameFile(r) }) {
		return r.unmap()
	}
	return f.setMemory(slices.Concat(f.memory.regions, regions), regions)
}

// removeRegion removes a region. The region may be removed already, for the same reason.
func (f *frontEnd) removeRegion(m *message) error {
	gone := m.regions()[0]
	left := slices.DeleteFunc(slices.Clone(f.memory.regions), func(r region) bool { return r.same(&gone) })
	if len(left) == len(f.memory.regions) {
		return nil
	}
	return f.setMemory(left, nil)
}

// setMemory has all rings use other memory, and unmaps regions that are no longer used. fresh has the
// new regions, which are unmapped if an error is returned.
func (f *frontEnd) setMemory(regions, fresh []region) error {
	m, err := newMemory(regions)
	if err != nil {
		unmapAll(fresh)
		return err
	}
	old := f.memory
	err = f.stopping(func() error {
		f.memory = m
		f.d.lender.lend(m.shared)
		for _, v := range f.d.rings {
			v.interrupt()
		}
		return nil
	})
	if f.memory != m {
		unmapAll(fresh)
		return err
	}
	return errors.Join(err, old.close(m))
}
