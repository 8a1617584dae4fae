package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc/stat, USER_HZ of the kernel.
const tick = 10 * time.Millisecond

// busy is the time that all processors of the machine together have worked.
func busy() (time.Duration, error) {
	t, err := processors()
	return t.busy, err
}

// times are those of all processors together.
type times struct{ busy, idle, stolen time.Duration }

func processors() (times, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return times{}, err
	}
	return parseStat(string(text))
}

// parseStat reads the first line of /proc/stat (proc(5)): user, nice, system,
// idle, iowait, irq, softirq, steal.
func parseStat(text string) (t times, err error) {
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
	return times{busy: v[0] + v[1] + v[2] + v[5] + v[6], idle: v[3] + v[4], stolen: v[7]}, err
}

// describe says what machine this is.
func describe() string {
	model := "processor of unknown model"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.SplitSeq(string(text), "\n") {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				model = strings.TrimSpace(v)
				break
			}
		}
	}
	kernel := "unknown kernel"
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = strings.TrimSpace(string(text))
	}
	return model + ", Linux " + kernel
}
