package iounit

import (
	"errors"
	"fmt"
	"strings"
)

// shownRefusals is the largest number of addresses that the error about a filter names.
const shownRefusals = 3

// summary returns one error about the refused ones of n further addresses, of which the host
// may have most, or nil if none is refused.
func summary(refused []refusedMAC, n, most int) error {
	var beyond []string
	var texts []string
	others := 0
	for _, r := range refused {
		switch {
		case errors.Is(r.why, errBeyond):
			beyond = append(beyond, r.mac.String())
		case others < shownRefusals:
			texts = append(texts, strings.TrimPrefix(r.why.Error(), errDenied.Error()+": "))
			others++
		default:
			others++
		}
	}
	if others > shownRefusals {
		texts = append(texts, fmt.Sprintf("and %d further addresses more", others-shownRefusals))
	}
	if len(beyond) > 0 {
		texts = append(texts, fmt.Sprintf("%d of %d further addresses, because this host may have %d (`max-macs` in the policy): %s",
			len(beyond), n, most, shorten(beyond)))
	}
	if len(texts) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", errDenied, strings.Join(texts, "; "))
}

// shorten lists the first ones of some words.
func shorten(words []string) string {
	text := strings.Join(words[:min(len(words), shownRefusals)], ", ")
	if n := len(words) - shownRefusals; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}
