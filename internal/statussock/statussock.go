// Package statussock serves a daemon's status as JSON on a unix socket, and
// reads it from there. It also carries commands to the daemon. Whoever may
// connect may know, and command: the socket is for its owner only.
package statussock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Dir is where daemons put their sockets unless they are told otherwise.
const Dir = "/run/splitnic"

const suffix = ".sock"

// Path is the socket of the daemon with that name, such as host-sn0.
func Path(name string) string { return filepath.Join(Dir, name+suffix) }

// List finds the sockets of the daemons on this machine, by name.
func List() ([]string, error) {
	entries, err := os.ReadDir(Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	var paths []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			paths = append(paths, filepath.Join(Dir, e.Name()))
		}
	}
	slices.Sort(paths)
	return paths, nil
}
