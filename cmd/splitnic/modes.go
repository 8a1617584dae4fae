package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/splitnic/splitnic/protocol"
)

// modeNames are the transfer modes as flags name them.
func modeNames() []string {
	var names []string
	for _, m := range protocol.Modes() {
		names = append(names, string(m))
	}
	return names
}

// parseModes parses the value of the flag, a list of transfer modes.
func parseModes(flag string, names []string) ([]protocol.Mode, error) {
	bad := func(err error) ([]protocol.Mode, error) {
		return nil, usageError{fmt.Errorf("%s: %w", flag, err)}
	}
	var modes []protocol.Mode
	for _, name := range names {
		m, err := protocol.ParseMode(name)
		if err != nil {
			return bad(err)
		}
		if slices.Contains(modes, m) {
			return bad(fmt.Errorf("%s is there twice", m))
		}
		modes = append(modes, m)
	}
	if len(modes) == 0 {
		return bad(errors.New("no mode is left; leave the flag out for the default"))
	}
	return modes, nil
}
