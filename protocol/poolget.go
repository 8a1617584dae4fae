package protocol

import (
	"encoding/binary"
	"fmt"
	"math"
)

// BufferRecvPoolGet is the message with which an initiator requests another pool. The target lends
// one or does nothing; there is no reply.
type BufferRecvPoolGet struct {
	TransactionContext uint64
	ElementSize        uint32 // bytes; the elements lent may be larger
	Elements           uint32 // number wanted; the pool lent may have more or fewer
	Channel            uint32 // data channel, from 1
}

// DecodeBufferRecvPoolGet decodes b, one whole message. It checks that the requested pool is within
// the limits of a pool.
func DecodeBufferRecvPoolGet(b []byte) (BufferRecvPoolGet, error) {
	transaction, rest, err := body(b, FuncBufferRecvPoolGet)
	if err != nil {
		return BufferRecvPoolGet{}, err
	}
	if err := exactly(rest, 12); err != nil {
		return BufferRecvPoolGet{}, fmt.Errorf("BufferRecvPoolGet: %w", err)
	}
	m := BufferRecvPoolGet{
		TransactionContext: transaction,
		ElementSize:        binary.BigEndian.Uint32(rest[0:]),
		Elements:           binary.BigEndian.Uint32(rest[4:]),
		Channel:            binary.BigEndian.Uint32(rest[8:]),
	}
	if err := m.Valid(); err != nil {
		return BufferRecvPoolGet{}, fmt.Errorf("BufferRecvPoolGet: %w", err)
	}
	return m, nil
}

// Valid checks that the requested pool is within the limits of a pool.
func (m BufferRecvPoolGet) Valid() error {
	switch {
	case m.ElementSize < MinElementSize:
		return fmt.Errorf("elements of %d bytes, must be at least %d: %w", m.ElementSize, MinElementSize, ErrSize)
	case m.Elements == 0 || m.Elements > MaxPoolElements:
		return fmt.Errorf("%d elements, must be 1 to %d: %w", m.Elements, MaxPoolElements, ErrCount)
	case m.Channel == 0 || m.Channel > math.MaxUint16:
		return fmt.Errorf("data channel %d: %w", m.Channel, ErrChannel)
	}
	return nil
}

// AppendBufferRecvPoolGet appends m.
func AppendBufferRecvPoolGet(dst []byte, m BufferRecvPoolGet) []byte {
	dst = appendHeader(dst, FuncBufferRecvPoolGet, m.TransactionContext)
	dst = binary.BigEndian.AppendUint32(dst, m.ElementSize)
	dst = binary.BigEndian.AppendUint32(dst, m.Elements)
	return binary.BigEndian.AppendUint32(dst, m.Channel)
}
