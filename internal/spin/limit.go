package spin

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/internal/cpus"
)

// fresh is how long a count of the running tasks is used.
const fresh = 4 * time.Millisecond

// Limit limits how many workers poll at a time. A process has one Limit. Any goroutine may use
// it.
type Limit struct {
	online   int // processors of the machine
	most     int
	runnable func() (int, error) // tasks of the machine that run or wait to run
	now      func() time.Time

	polling atomic.Int64

	mu   sync.Mutex // guards the fields below; a caller that finds it locked uses the last count
	at   time.Time  // time of the last count
	idle atomic.Int64
}

// NewLimit makes the Limit of this process. It leaves one of the processors that the process may
// use at a time (by its affinity, its quota) to everything else.
func NewLimit() *Limit {
	return LimitOf(len(cpus.Online()), runtime.GOMAXPROCS(0)-1, new(loadavg).runnable)
}

// LimitOf makes a Limit for a machine with online processors. most is how many workers may poll
// at a time. runnable counts the machine's tasks that run or wait to run. Only one goroutine at a
// time calls it.
func LimitOf(online, most int, runnable func() (int, error)) *Limit {
	return &Limit{online: online, most: most, runnable: runnable, now: time.Now}
}

// Enter reports whether one more worker may poll. If it may, it has to call Leave afterwards.
func (l *Limit) Enter() bool {
	if l.most <= 0 {
		return false
	}
	l.look()
	if n := l.polling.Add(1); n > int64(l.most) || n > l.idle.Load() {
		l.polling.Add(-1)
		return false
	}
	return true
}

// Leave records that a worker has stopped polling.
func (l *Limit) Leave() { l.polling.Add(-1) }

// look counts the processors that would be idle if no worker polled, unless the last count is
// fresh.
func (l *Limit) look() {
	if !l.mu.TryLock() {
		return
	}
	defer l.mu.Unlock()
	now := l.now()
	if now.Sub(l.at) < fresh {
		return
	}
	l.at = now
	polling := int(l.polling.Load())
	running, err := l.runnable()
	if err != nil {
		l.idle.Store(0)
		return
	}
	// One of the running tasks is the caller, which would sleep otherwise.
	l.idle.Store(int64(l.online - max(running-1-polling, 0)))
}

// loadavg reads /proc/loadavg (proc_loadavg(5)), which costs about a microsecond.
type loadavg struct {
	file *os.File
	buf  [128]byte
}

func (l *loadavg) runnable() (int, error) {
	if l.file == nil {
		f, err := os.Open("/proc/loadavg")
		if err != nil {
			return 0, err
		}
		l.file = f
	}
	n, err := l.file.ReadAt(l.buf[:], 0)
	if n == 0 {
		return 0, err
	}
	return parseRunnable(l.buf[:n])
}

// parseRunnable returns the number before the slash in the fourth field.
func parseRunnable(text []byte) (int, error) {
	for range 3 {
		_, after, ok := bytes.Cut(text, []byte(" "))
		if !ok {
			return 0, errShort
		}
		text = after
	}
	number, _, ok := bytes.Cut(text, []byte("/"))
	if !ok {
		return 0, errShort
	}
	return strconv.Atoi(string(number))
}

var errShort = errors.New("/proc/loadavg has not the form of proc_loadavg(5)")
