package native

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/scripts/measure/testbed"
)

const (
	vhostFrame = 64               // bytes
	bootTime   = 30 * time.Second // limit for testpmd to start, and for similar waits
)

// vhostBed has the resources of a measurement of vhost-user ports.
type vhostBed struct {
	dir   string
	ends  []func() error // release the resources; close calls the last one first
	tasks testbed.Tasks
}

func (v *vhostBed) later(end func() error) { v.ends = append(v.ends, end) }

func (v *vhostBed) close() error {
	var errs []error
	for i := len(v.ends) - 1; i >= 0; i-- {
		errs = append(errs, v.ends[i]())
	}
	return errors.Join(append(errs, v.tasks.Wait(), os.RemoveAll(v.dir))...)
}

var quiet = slog.New(slog.DiscardHandler)

// namespace makes a network namespace.
func (v *vhostBed) namespace(name string) (string, error) {
	ns := fmt.Sprintf("%s%d-%s", prefix, os.Getpid(), name)
	if err := netns.New(ns); err != nil {
		return "", err
	}
	v.later(func() error { return netns.Delete(ns) })
	return ns, nil
}
