// Package statussock serves a daemon's status as JSON on a unix socket, and reads it from there.
// It also carries commands to the daemon. A user who may connect may read everything and send
// commands: the socket is for its owner only.
package statussock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Dir is the default directory of the daemons' sockets.
const Dir = "/run/splitnic"

const suffix = ".sock"

// Path returns the path of the socket of the daemon with this name, such as host-sn0.
func Path(name string) string { return filepath.Join(Dir, name+suffix) }

// List returns the paths of the daemons' sockets in Dir, sorted.
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

const contentType = "application/json"

// maxArgument is the largest argument in bytes.
const maxArgument = 64 << 10

// failure is the answer to a command that failed.
type failure struct {
	Error string `json:"error"`
}

// apiRoot is the path of an API on a socket.
const apiRoot = "/v1/"

// The answer of a command with output while it runs (RunTo) ends with HTTP trailers: the result,
// or the error.
const (
	trailerResult = "Splitnic-Result"
	trailerError  = "Splitnic-Error"
)

// streamType is the content type of the output of such a command.
const streamType = "application/octet-stream"
