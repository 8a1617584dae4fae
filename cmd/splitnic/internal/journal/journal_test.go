package journal

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func TestPriorities(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(newHandler(&b, true, slog.LevelDebug, false)).With("host", "alpha").WithGroup("g")
	log.Debug("a")
	log.Info("b")
	log.Warn("c")
	log.Error("d", "error", errors.New("x\ny"))
	writeError(&b, true, "e", false)
	writeError(&b, true, "f", true)
	want := "<7>level=DEBUG msg=a host=alpha\n<6>level=INFO msg=b host=alpha\n<4>level=WARN msg=c host=alpha\n" +
		`<3>level=ERROR msg=d host=alpha g.error="x\ny"` + "\n<3>splitnic: e\n" +
		`<3>{"level":"ERROR","msg":"f"}` + "\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	b.Reset()
	slog.New(newHandler(&b, true, slog.LevelInfo, true)).Warn("c")
	if want := `<4>{"level":"WARN","msg":"c"}` + "\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	b.Reset()
	log = slog.New(newHandler(&b, false, slog.LevelInfo, false))
	log.Debug("a")
	log.Warn("c")
	writeError(&b, false, "e", false)
	if got := b.String(); !strings.HasPrefix(got, "time=") || !strings.HasSuffix(got, "level=WARN msg=c\nsplitnic: e\n") {
		t.Errorf("%q elsewhere", got)
	}
}

// TestPrioritiesOfMany logs from several goroutines and expects each line to have its priority.
func TestPrioritiesOfMany(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(newHandler(&b, true, slog.LevelInfo, false))
	var all sync.WaitGroup
	for _, level := range []slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		all.Go(func() {
			own := log.With("to", priority(level))
			for range 100 {
				own.Log(t.Context(), level, "m")
			}
		})
	}
	all.Wait()
	for line := range strings.Lines(b.String()) {
		if !strings.HasSuffix(line, " to="+line[:3]+"\n") {
			t.Fatalf("%q", line)
		}
	}
}

// TestStderr sets JOURNAL_STREAM to the file of standard error, to another file, and to invalid
// values. It expects true only for the first.
func TestStderr(t *testing.T) {
	var s syscall.Stat_t
	if err := syscall.Fstat(syscall.Stderr, &s); err != nil {
		t.Fatal(err)
	}
	for stream, want := range map[string]bool{
		fmt.Sprintf("%d:%d", s.Dev, s.Ino): true, fmt.Sprintf("%d:%d", s.Dev, s.Ino+1): false, "": false, "x": false,
	} {
		t.Setenv("JOURNAL_STREAM", stream)
		if isJournal() != want {
			t.Errorf("JOURNAL_STREAM=%s: %v", stream, !want)
		}
	}
}
