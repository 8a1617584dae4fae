package iounit

import (
	"github.com/splitnic/splitnic/internal/counter"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// HostCounters is the table of what an I/O unit counts of a host, in the order of
// HostStatus.Counts. Their names are paths in the status.
func HostCounters() []counter.Counter {
	within := func(path string, all []counter.Counter) []counter.Counter {
		for i := range all {
			all[i].Name = path + all[i].Name
		}
		return all
	}
	all := within("statistics.", counter.Of[protocol.Statistics](""))
	all = append(all, within("dropped_by_policy.", counter.Of[Dropped]("tx"))...)
	return append(all, counter.Of[PortCounters]("")...)
}

// Counts are the values of HostCounters.
func (h *HostStatus) Counts() []uint64 {
	return counter.Values(counter.Values(counter.Values(nil, &h.Statistics), &h.Dropped), &h.PortCounters)
}

// PortCounters are those besides what became of the frames, in the present session.
type PortCounters struct {
	Announced           uint64 `json:"announced" metric:"iounit_host_announcements" help:"frames that told the LAN where the host is"`
	TxLimited           uint64 `json:"tx_limited" metric:"iounit_host_limited" help:"times that a channel had to wait because of a rate"`
	RxLimited           uint64 `json:"rx_limited" metric:"iounit_host_limited" help:"times that a channel had to wait because of a rate"`
	TxOversize          uint64 `json:"tx_oversize" metric:"iounit_host_oversize_frames" help:"frames passed that are longer than the card's MTU and one VLAN tag, which cards may drop"`
	HeartbeatsThrottled uint64 `json:"heartbeats_throttled" metric:"iounit_host_heartbeats_throttled" help:"times that heartbeats came too fast and were left waiting"`
}

// statistics are the host's counters since the session began: those of the
// channels, of the LAN interface and of the rules, from the host's point of
// view.
func (s *services) statistics() (st protocol.Statistics, d Dropped) {
	for _, c := range s.conn.Stats().Channels {
		st.RxFrames += c.TxFrames
		st.RxBytes += c.TxBytes - vnet.HdrLen*c.TxFrames
		st.RxTooLong += c.TxTooLong
		st.RxInvalid += c.TxInvalid + c.TxMalformed
		st.TxDropped += c.RxDropped + c.RxOverMTU + c.RxMalformed
	}
	l := s.port.Stats() // TooLong is among TxTooLong
	st.RxDropped += l.Dropped
	st.RxInvalid += l.Invalid
	for _, p := range s.ports {
		p.count(&st, &d)
	}
	return st, d
}

// reported are the counters as the host is told them.
func (s *services) reported() protocol.Statistics {
	st, d := s.statistics()
	return d.into(st)
}
