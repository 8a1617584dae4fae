package results

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// Environment describes the machine and the software of a measurement.
type Environment struct {
	Machine    string `json:"machine"` // model of the processors
	Processors int    `json:"processors"`
	Kernel     string `json:"kernel"` // of the machine; the kernel of a guest is in a note
	Software   string `json:"software"`
}

func (e Environment) String() string {
	return fmt.Sprintf("%d × %s, Linux %s, splitnic %s", e.Processors, e.Machine, e.Kernel, e.Software)
}

// version is set by the linker.
var version = "devel"

// here returns the environment of this process.
func here() Environment {
	e := Environment{Machine: "processor of unknown model", Processors: runtime.NumCPU(), Kernel: "unknown",
		Software: version}
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if all, err := fs.CPUInfo(); err == nil && len(all) > 0 {
			e.Machine = all[0].ModelName
		}
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		e.Kernel = strings.TrimSpace(string(text))
	}
	return e
}

// Times has the times of all processors together.
type Times struct{ Busy, Stolen time.Duration }

func (t Times) since(begin Times) Times { return Times{t.Busy - begin.Busy, t.Stolen - begin.Stolen} }

// Processors returns the times of the machine's processors so far.
func Processors() (Times, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return Times{}, err
	}
	stat, err := fs.Stat()
	t := stat.CPUTotal
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return Times{Busy: seconds(t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ), Stolen: seconds(t.Steal)}, err
}

// Pause waits for d. If ctx ends before that, it returns the cause.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
