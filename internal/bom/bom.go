// Package bom removes the mark with which editors of other systems begin a text.
package bom

import (
	"bytes"
	"errors"
)

// errUTF16 is the error about a text in UTF-16.
var errUTF16 = errors.New("the text is in UTF-16; save it as UTF-8")

// Cut returns text without a byte-order mark of UTF-8 at its beginning. It returns errUTF16 if
// there is a mark of UTF-16.
func Cut(text []byte) ([]byte, error) {
	if bytes.HasPrefix(text, []byte{0xff, 0xfe}) || bytes.HasPrefix(text, []byte{0xfe, 0xff}) {
		return nil, errUTF16
	}
	return bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), nil
}
