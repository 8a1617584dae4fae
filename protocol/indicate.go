package protocol

import "encoding/binary"

const indicationSize = 12

// MaxIndications is the largest number of transfers in a BufferRDMAIndicate.
const MaxIndications = (MaxControlSize - HeaderSize) / indicationSize

// Indication means that bytes were written to the beginning of an element. It is like ImmData with
// 32 bits for each part.
type Indication struct {
	Pool    uint32 // reference
	Element uint32 // index
	Length  uint32 // bytes
}

// BufferRDMAIndicate is the decoded message with which an initiator indicates completed RDMA writes
// without immediate data, in their order. It borrows the message's bytes.
type BufferRDMAIndicate struct {
	TransactionContext uint64
	indications        []byte
}

// DecodeBufferRDMAIndicate decodes b, one whole message. The target has to check that the pool and
// the element exist, and that the element has the length.
func DecodeBufferRDMAIndicate(b []byte) (BufferRDMAIndicate, error) {
	transaction, rest, err := records(b, FuncBufferRDMAIndicate, indicationSize)
	if err != nil {
		return BufferRDMAIndicate{}, err
	}
	return BufferRDMAIndicate{TransactionContext: transaction, indications: rest}, nil
}

// Len returns the number of transfers, at least one.
func (m BufferRDMAIndicate) Len() int { return len(m.indications) / indicationSize }

// At returns the i-th transfer, i from 0 to Len()-1.
func (m BufferRDMAIndicate) At(i int) Indication {
	b := m.indications[i*indicationSize:][:indicationSize]
	return Indication{
		Pool:    binary.BigEndian.Uint32(b[0:]),
		Element: binary.BigEndian.Uint32(b[4:]),
		Length:  binary.BigEndian.Uint32(b[8:]),
	}
}

// AppendBufferRDMAIndicate appends a message that indicates 1 to MaxIndications transfers.
func AppendBufferRDMAIndicate(dst []byte, transaction uint64, indications ...Indication) []byte {
	dst = appendHeader(dst, FuncBufferRDMAIndicate, transaction)
	for i := range indications {
		n := &indications[i]
		dst = binary.BigEndian.AppendUint32(dst, n.Pool)
		dst = binary.BigEndian.AppendUint32(dst, n.Element)
		dst = binary.BigEndian.AppendUint32(dst, n.Length)
	}
	return dst
}
