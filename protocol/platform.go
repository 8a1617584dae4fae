package protocol

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Run identifies one run of a process. It has random bytes; the zero value is none.
type Run [16]byte

// Platform identifies a host or an I/O unit, and thereby the process to whose memory a handle and
// an address refer. 0 is none.
type Platform uint64

// platformLabel is hashed first, so that the hash has no other use.
const platformLabel = "splitnic platform"

// PlatformOf returns the identifier of a process with a key. keyHash is the fingerprint of the key.
// The identifier is the first 64 bits of the SHA-256 of the label, the fingerprint and the run.
func PlatformOf(keyHash [sha256.Size]byte, run Run) Platform {
	b := append([]byte(platformLabel), keyHash[:]...)
	sum := sha256.Sum256(append(b, run[:]...))
	return max(1, Platform(binary.BigEndian.Uint64(sum[:])))
}

// String returns 16 hexadecimal digits.
func (p Platform) String() string { return fmt.Sprintf("%016x", uint64(p)) }

// MarshalText implements encoding.TextMarshaler.
func (p Platform) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler: 16 hexadecimal digits, not
// all zero.
func (p *Platform) UnmarshalText(b []byte) error {
	var raw [8]byte
	if err := hexText(raw[:], b, "platform identifier"); err != nil {
		return err
	}
	*p = Platform(binary.BigEndian.Uint64(raw[:]))
	return nil
}

// MarshalText implements encoding.TextMarshaler: 32 hexadecimal digits.
func (r Run) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, r[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler: 32 hexadecimal digits, not
// all zero.
func (r *Run) UnmarshalText(b []byte) error {
	return hexText(r[:], b, "run of a process")
}

// hexText decodes b, exactly two digits for each byte of dst.
func hexText(dst, b []byte, what string) error {
	if len(b) != 2*len(dst) {
		return fmt.Errorf("%s of %d characters, must be %d hexadecimal digits: %w", what, len(b), 2*len(dst), ErrSize)
	}
	if _, err := hex.Decode(dst, b); err != nil {
		return fmt.Errorf("%s %q: %w", what, b, err)
	}
	for _, d := range dst {
		if d != 0 {
			return nil
		}
	}
	return fmt.Errorf("%s is zero: %w", what, ErrPlatform)
}
