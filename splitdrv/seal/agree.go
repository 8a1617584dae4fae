package seal

import (
	"errors"
	"fmt"
)

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
