package protocol

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/splitnic/splitnic/internal/printable"
)

// MaxRefusal is the largest number of bytes of a refusal.
const MaxRefusal = 512

// AppendSubject appends the data of CfgRefusal, 32 bits: the type of the requests that it is about.
// A host asks why the I/O unit has refused the last of them, or a part of it. The I/O unit reports
// that the reason may have passed, and that the host may repeat its request.
func AppendSubject(dst []byte, t CfgType) []byte {
	return binary.BigEndian.AppendUint32(dst, uint32(t))
}

// DecodeSubject decodes the data of CfgRefusal.
func DecodeSubject(data []byte) (CfgType, error) {
	if err := dataSize(CfgRefusal, data, 4); err != nil {
		return 0, err
	}
	return CfgType(binary.BigEndian.Uint32(data)), nil
}

// AppendRefusal appends the reason of a refusal, of which it takes at most MaxRefusal bytes. An
// empty text says that nothing is refused.
func AppendRefusal(dst []byte, text string) []byte {
	if len(text) > MaxRefusal {
		text = strings.ToValidUTF8(text[:MaxRefusal], "") // without the part of a character
	}
	return append(dst, text...)
}

// DecodeRefusal decodes the data of a reply to CfgRefusal. The text is for display: one line of
// printable characters, whatever the peer has sent.
func DecodeRefusal(data []byte) (string, error) {
	if len(data) > MaxRefusal {
		return "", fmt.Errorf("%v: %d bytes of data, at most %d: %w", CfgRefusal, len(data), MaxRefusal, ErrSize)
	}
	return printable.Text(string(data)), nil
}
