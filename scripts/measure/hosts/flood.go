package hosts

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/splitnic/splitnic/scripts/measure/results"
)

// flood has the results of a measurement in which all hosts send as fast as they can.
type flood struct {
	rate      float64 // frames per second of all hosts together
	processor float64 // seconds of processor time per frame, of both endpoints
	busiest   float64 // frames of the host with the most frames, in relation to the mean
	least     float64 // frames of the host with the fewest frames, in relation to the mean
	// registered is the number of bytes registered per host at the end, at both endpoints.
	registered float64
	// alone and beside are of a host that answers single frames: alone, and while all other
	// hosts flood. beside is nil if there are no other hosts.
	alone, beside *trips
}

const (
	// settle is the shortest time for which hosts flood before the measurement. Hosts flood
	// until the memory that they have touched grows by a hundredth at most within settle, but
	// not longer than maxSettles times settle. Each host gets its pools in this time, and with
	// 512 hosts the kernel has gigabytes to clear. Devices touch all memory when it is
	// registered.
	settle     = time.Second
	maxSettles = 60
)

// settled waits until the hosts have touched their memory. resident returns the number of bytes
// touched.
func settled(ctx context.Context, resident func() (uint64, error)) error {
	before := uint64(0)
	for range maxSettles {
		if err := results.Pause(ctx, settle); err != nil {
			return err
		}
		now, err := resident()
		if err != nil || now-min(before, now) <= now/100 {
			return err
		}
		before = now
	}
	return nil
}

// flood measures one host that answers single frames, alone for d. Then it makes all hosts send
// frames to the LAN, and measures for d. At last all hosts but this one send, and it answers
// single frames for d again.
func (m *gathering) flood(ctx context.Context, d time.Duration) (_ *flood, err error) {
	sparse := m.netdevs[0]
	alone, err := m.trips(ctx, sparse, d)
	if err != nil {
		return nil, err
	}
	floods := make([]*netdev, 0, len(m.netdevs))
	defer func() {
		for _, n := range floods {
			err = errors.Join(err, n.port.end())
		}
	}()
	for _, n := range m.netdevs {
		s, err := n.State()
		if err != nil {
			return nil, err
		}
		if err := n.port.begin(frameOf(nobody, s.MAC)); err != nil {
			return nil, err
		}
		floods = append(floods, n)
	}
	if err := settled(ctx, resident); err != nil {
		return nil, err
	}
	began, cpu, before := time.Now(), used(), m.lan.taken()
	if err := results.Pause(ctx, d); err != nil {
		return nil, err
	}
	took, cpu, after := time.Since(began), used()-cpu, m.lan.taken()
	// A host whose session has ended meanwhile has an additional port.
	before = append(before, make([]uint64, len(after)-len(before))...)
	sum := uint64(0)
	for i := range after {
		after[i] -= before[i]
		sum += after[i]
	}
	if sum == 0 {
		return nil, errors.New("no frame came through")
	}
	mean := float64(sum) / float64(len(m.hosts))
	f := &flood{
		rate: float64(sum) / took.Seconds(), processor: cpu.Seconds() / float64(sum),
		busiest: float64(slices.Max(after)) / mean, least: float64(slices.Min(after)) / mean,
		registered: m.registered(), alone: alone,
	}
	if len(floods) == 1 {
		return f, nil
	}
	floods = floods[1:]
	if err := sparse.port.end(); err != nil {
		return nil, err
	}
	if err := results.Pause(ctx, settle); err != nil { // for frames that sparse has sent before
		return nil, err
	}
	f.beside, err = m.trips(ctx, sparse, d)
	return f, err
}
