package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/splitnic/splitnic/internal/statussock"
)

// StateDir is the default directory with data for the next process.
const StateDir = "/var/lib/splitnic"

// needDirectory returns an error if the directory of a flag is missing. The program makes only its
// own directories, the defaults and those below them: another one may be mistyped, or belong to a
// file system that is not mounted yet.
func needDirectory(flag, dir string) error {
	for _, own := range []string{statussock.Dir, StateDir} {
		if rel, err := filepath.Rel(own, dir); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return nil
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return nil // the error of its first use says more
	}
	err := &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOENT}
	return fmt.Errorf("%s: %w; make the directory: mkdir -p %s", flag, err, dir)
}

// needDirectories returns errors for missing directories of the flags of both endpoints.
func (c *Common) needDirectories() error {
	if c.StatusSocket == "" {
		return nil
	}
	return needDirectory("--status-socket", filepath.Dir(c.StatusSocket))
}

// needDirectories returns errors for missing directories of the flags of a host or an agent.
func (c *Host) needDirectories() error {
	err := c.Common.needDirectories()
	if c.State == "" {
		return err
	}
	return errors.Join(err, needDirectory("--state", c.State))
}
