package results

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
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
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				e.Machine = strings.TrimSpace(v)
				break
			}
		}
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		e.Kernel = strings.TrimSpace(string(text))
	}
	return e
}

// tick is the unit of /proc/stat, USER_HZ of the kernel.
const tick = 10 * time.Millisecond

// Times has the times of all processors together.
type Times struct{ Busy, Stolen time.Duration }

func (t Times) since(begin Times) Times { return Times{t.Busy - begin.Busy, t.Stolen - begin.Stolen} }

// Processors returns the times of the machine's processors so far.
func Processors() (Times, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Times{}, err
	}
	return parseStat(string(text))
}

// parseStat reads the first line of /proc/stat (proc(5)): user, nice, system,
// idle, iowait, irq, softirq, steal.
func parseStat(text string) (t Times, err error) {
	line, _, _ := strings.Cut(text, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return t, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var v [8]time.Duration
	for i := range v {
		n, e := strconv.ParseInt(f[i+1], 10, 64)
		err = errors.Join(err, e)
		v[i] = time.Duration(n) * tick
	}
	return Times{Busy: v[0] + v[1] + v[2] + v[5] + v[6], Stolen: v[7]}, err
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
