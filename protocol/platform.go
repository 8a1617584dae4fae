package protocol

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Run tells one start of a process from all others: random bytes of its own.
// The zero value stands for none.
type Run [16]byte

// Platform identifies a host or an I/O unit, and with it the process in whose
// memory a handle and an address mean something. 0 stands for none.
type Platform uint64

// platformLabel is what is hashed first, so that the hash is of use here only.
const platformLabel = "splitnic platform"

// PlatformOf is the identifier of a process that runs with a key, of which
// keyHash is the fingerprint: the first 64 bits of the SHA-256 of the label, the
// fingerprint and the run.
func PlatformOf(keyHash [sha256.Size]byte, run Run) Platform {
	b := append([]byte(platformLabel), keyHash[:]...)
	sum := sha256.Sum256(append(b, run[:]...))
	return max(1, Platform(binary.BigEndian.Uint64(sum[:])))
}

// String is 16 hexadecimal digits.
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
