package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/splitnic/splitnic/internal/testlist"
)

// events passes the events of several go tests on to one gotestsum, and prints the progress.
type events struct {
	layer  string
	total  int // top-level tests
	start  time.Time
	ticker *time.Timer

	mu   sync.Mutex
	to   io.WriteCloser
	done int
	last string // the test that ended last
}

func newEvents(to io.WriteCloser, layer string, total int) *events {
	e := &events{to: to, layer: layer, total: total, start: time.Now(), last: "none yet"}
	e.ticker = time.AfterFunc(progressPeriod, e.progress)
	return e
}

// progressPeriod is the time between two lines about the progress.
const progressPeriod = 10 * time.Second

// progress prints how far the layer is.
func (e *events) progress() {
	e.mu.Lock()
	defer e.mu.Unlock()
	fmt.Fprintf(os.Stderr, "   %s: %d of %d tests after %v, the last: %s\n",
		e.layer, e.done, e.total, time.Since(e.start).Round(time.Second), e.last)
	e.ticker.Reset(progressPeriod)
}

// read passes the events of one go test on. What is not an event goes to standard error.
func (e *events) read(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		if err := e.event(append(lines.Bytes(), '\n')); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (e *events) event(line []byte) error {
	var event struct{ Action, Package, Test string }
	if json.Unmarshal(line, &event) != nil {
		_, err := os.Stderr.Write(line)
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if ended := event.Action == "pass" || event.Action == "fail" || event.Action == "skip"; ended &&
		event.Test != "" && !strings.Contains(event.Test, "/") {
		e.done++
		e.last = testlist.Short(event.Package) + " " + event.Test
	}
	_, err := e.to.Write(line)
	return err
}

// close ends the lines about the progress, and the events.
func (e *events) close() error {
	e.ticker.Stop()
	return e.to.Close()
}
