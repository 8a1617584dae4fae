package protocol

import (
	"encoding/binary"
	"fmt"

	"github.com/splitnic/splitnic/vnet"
)

const (
	// SendDataOverhead is the number of bytes that SendData adds to the data: the header and the
	// size of the data.
	SendDataOverhead = HeaderSize + 4
	// SealOverhead is the number of bytes that encryption adds to a transfer or a message.
	SealOverhead = 16
	// MaxSendData is the size of the largest SendData in bytes. MaxControlSize does not apply,
	// because SendData is sent on data channels only.
	MaxSendData = SendDataOverhead + maxData

	// maxData is the size of the largest data of a SendData: a frame, which may be encrypted.
	maxData = vnet.MaxFrame + SealOverhead
)

// SendData is the message with a frame in the modes that send.
type SendData struct {
	// TransactionContext is the message's sequence number on its data channel
	// and in its direction: 0, 1, 2 and so on.
	TransactionContext uint64
	Data               []byte // at least one byte; borrows the message's bytes
}

// DecodeSendData decodes b, one whole message.
func DecodeSendData(b []byte) (SendData, error) {
	if len(b) < HeaderSize {
		return SendData{}, fmt.Errorf("message of %d bytes has no header: %w", len(b), ErrShort)
	}
	if len(b) > MaxSendData {
		return SendData{}, fmt.Errorf("message of %d bytes, at most %d: %w", len(b), MaxSendData, ErrLong)
	}
	h, err := decodeHeader(b, Function.known)
	if err != nil {
		return SendData{}, err
	}
	if h.Function != FuncSendData {
		return SendData{}, fmt.Errorf("%v where %v was expected: %w", h.Function, FuncSendData, ErrFunction)
	}
	if len(b) < SendDataOverhead {
		return SendData{}, fmt.Errorf("SendData of %d bytes, must be more than %d: %w", len(b), SendDataOverhead, ErrShort)
	}
	size, data := binary.BigEndian.Uint32(b[HeaderSize:]), b[SendDataOverhead:]
	switch {
	case size == 0:
		return SendData{}, fmt.Errorf("SendData without data: %w", ErrSize)
	case size > maxData:
		return SendData{}, fmt.Errorf("SendData: data of %d bytes, at most %d: %w", size, maxData, ErrSize)
	case int(size) > len(data):
		return SendData{}, fmt.Errorf("SendData: data of %d bytes, %d follow: %w", size, len(data), ErrShort)
	case int(size) < len(data):
		return SendData{}, fmt.Errorf("SendData: data of %d bytes, %d follow: %w", size, len(data), ErrTrailing)
	}
	return SendData{TransactionContext: h.TransactionContext, Data: data}, nil
}

// PutSendData writes the SendDataOverhead bytes that precede size bytes of data to the beginning of
// dst, which must have room for them.
func PutSendData(dst []byte, seq uint64, size int) {
	_ = dst[SendDataOverhead-1]
	binary.BigEndian.PutUint16(dst[0:], uint16(FuncSendData))
	binary.BigEndian.PutUint16(dst[2:], Version)
	binary.BigEndian.PutUint64(dst[4:], seq)
	binary.BigEndian.PutUint32(dst[12:], uint32(size))
}
