package bom

import (
	"errors"
	"testing"
)

func TestCut(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "a": "a", "\xef\xbb\xbfa: b": "a: b", "\xef\xbb\xbf": "", "\xef\xbb": "\xef\xbb",
		"\xef\xbb\xbf\xef\xbb\xbfa": "\xef\xbb\xbfa", "a\xef\xbb\xbf": "a\xef\xbb\xbf",
	} {
		if got, err := Cut([]byte(text)); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"\xff\xfea\x00", "\xfe\xff\x00a"} {
		if got, err := Cut([]byte(text)); !errors.Is(err, errUTF16) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
