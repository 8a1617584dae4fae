package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/sys/cpu"

	"github.com/splitnic/splitnic/protocol"
)

// Cipher is the name of a cipher: an AEAD with nonces of 96 bits and tags of 128 bits (RFC 5116,
// RFC 8439).
type Cipher string

// The ciphers.
const (
	AES128GCM        Cipher = "aes-128-gcm"
	AES256GCM        Cipher = "aes-256-gcm"
	ChaCha20Poly1305 Cipher = "chacha20-poly1305"
)

// Overhead is the number of bytes that sealing adds to a transfer or message: the tag behind it.
const Overhead = protocol.SealOverhead

const nonceSize = 12

// ErrCipher is wrapped by the error of an unknown cipher.
var ErrCipher = errors.New("unknown cipher")

// Ciphers returns all ciphers in the order of preference of this machine: AES first if its
// processors have instructions for it.
func Ciphers() []Cipher { return ordered(hasAES()) }

func ordered(aes bool) []Cipher {
	if aes {
		return []Cipher{AES128GCM, AES256GCM, ChaCha20Poly1305}
	}
	return []Cipher{ChaCha20Poly1305, AES128GCM, AES256GCM}
}

// hasAES reports whether the processors have the instructions that crypto/aes uses for GCM.
func hasAES() bool {
	switch runtime.GOARCH {
	case "amd64":
		return cpu.X86.HasAES && cpu.X86.HasPCLMULQDQ && cpu.X86.HasSSE41 && cpu.X86.HasSSSE3
	case "arm64":
		return cpu.ARM64.HasAES && cpu.ARM64.HasPMULL
	default:
		return runtime.GOARCH == "s390x" || strings.HasPrefix(runtime.GOARCH, "ppc64")
	}
}

// ParseCiphers parses a comma-separated list of ciphers, in the order of preference.
func ParseCiphers(list string) ([]Cipher, error) {
	var some []Cipher
	for name := range strings.SplitSeq(list, ",") {
		c := Cipher(strings.TrimSpace(name))
		if c.keySize() == 0 || slices.Contains(some, c) {
			return nil, fmt.Errorf("%w %q: must be some of %s, each once", ErrCipher, c, Names(ordered(true)))
		}
		some = append(some, c)
	}
	return some, nil
}

// Names returns the names of ciphers, separated by commas.
func Names(ciphers []Cipher) string {
	names := make([]string, len(ciphers))
	for i, c := range ciphers {
		names[i] = string(c)
	}
	return strings.Join(names, ",")
}

// Choose returns the cipher for a session of two sides that have these ciphers, each in the order of
// preference: the first of theirs that this side has. If one side prefers ChaCha20, for which no
// processor needs instructions of its own, that is taken. It returns "" if they have none in common.
func Choose(ours, theirs []Cipher) Cipher {
	if len(ours) > 0 && ours[0] == ChaCha20Poly1305 && slices.Contains(theirs, ChaCha20Poly1305) {
		return ChaCha20Poly1305
	}
	for _, c := range theirs {
		if c.keySize() > 0 && slices.Contains(ours, c) {
			return c
		}
	}
	return ""
}

// keySize returns the size of the cipher's key in bytes, or 0 for an unknown cipher.
func (c Cipher) keySize() int {
	switch c {
	case AES128GCM:
		return 16
	case AES256GCM:
		return 32
	case ChaCha20Poly1305:
		return chacha20poly1305.KeySize
	default:
		return 0
	}
}

func (c Cipher) aead(key []byte) (cipher.AEAD, error) {
	if c == ChaCha20Poly1305 {
		return chacha20poly1305.New(key)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Wish is what one side wants: whether its sessions are encrypted.
type Wish string

// The wishes. Sessions are encrypted if either side requires it.
const (
	Required Wish = "required"
	Allowed  Wish = "allowed" // the default
	No       Wish = "no"
)

// Wishes returns all wishes.
func Wishes() []Wish { return []Wish{Required, Allowed, No} }

// ParseWish parses a wish.
func ParseWish(s string) (Wish, error) {
	for _, w := range Wishes() {
		if s == string(w) {
			return w, nil
		}
	}
	return "", fmt.Errorf("%q must be %s, %s or %s", s, Required, Allowed, No)
}

// ErrDisagree is wrapped by the error of two sides of which one requires encryption that the other
// cannot or must not have.
var ErrDisagree = errors.New("no agreement about encryption")

// Agree returns the cipher of a session, or "" if it is not encrypted. unit is what the I/O unit
// wants for this host, and ours are its ciphers. host says that the host requires encryption, and
// theirs are its ciphers, none if it does not want any.
func Agree(unit Wish, ours []Cipher, host bool, theirs []Cipher) (Cipher, error) {
	if unit != Required && !host {
		return "", nil
	}
	switch c := Choose(ours, theirs); {
	case unit == No:
		return "", fmt.Errorf("%w: the host requires it, and this I/O unit has `encrypt: no` for it", ErrDisagree)
	case len(theirs) == 0:
		return "", fmt.Errorf("%w: this I/O unit requires it, and the host does not offer it: it has --encrypt no, or an old version",
			ErrDisagree)
	case c == "":
		return "", fmt.Errorf("%w: the host has the ciphers %s, this I/O unit %s", ErrDisagree, Names(theirs), Names(ours))
	default:
		return c, nil
	}
}
