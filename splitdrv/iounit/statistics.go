package iounit

import (
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

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

// told are the counters as the host is told them.
func (s *services) told() protocol.Statistics {
	st, d := s.statistics()
	return d.into(st)
}

// minus is what was counted since the counters were b.
func minus(a, b protocol.Statistics) protocol.Statistics {
	return protocol.Statistics{
		RxFrames: a.RxFrames - b.RxFrames, RxBytes: a.RxBytes - b.RxBytes,
		TxFrames: a.TxFrames - b.TxFrames, TxBytes: a.TxBytes - b.TxBytes,
		RxDropped: a.RxDropped - b.RxDropped, RxTooLong: a.RxTooLong - b.RxTooLong,
		RxInvalid: a.RxInvalid - b.RxInvalid, RxFiltered: a.RxFiltered - b.RxFiltered,
		TxDropped: a.TxDropped - b.TxDropped, TxSource: a.TxSource - b.TxSource, TxVLAN: a.TxVLAN - b.TxVLAN,
	}
}
