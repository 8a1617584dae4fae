package statussock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
)

// streaming serves a command "tell" that writes a stream.
func streaming(t *testing.T, run func(context.Context, json.RawMessage, io.Writer) (any, error)) (string, *Server) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.sock")
	s, err := Serve(path, func() any { return 1 }, Command{Name: "tell", RunTo: run})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return path, s
}

func TestStream(t *testing.T) {
	heard := make(chan string)
	path, _ := streaming(t, func(_ context.Context, argument json.RawMessage, w io.Writer) (any, error) {
		fmt.Fprintf(w, "about %s:", argument)
		if got := <-heard; !strings.HasSuffix(got, ":") { // received before the command ends
			t.Errorf("heard %q meanwhile", got)
		}
		fmt.Fprint(w, " much")
		return []string(nil), nil
	})
	var all bytes.Buffer
	r, w := io.Pipe()
	go func() {
		defer close(heard)
		buf := make([]byte, 100)
		for {
			n, err := r.Read(buf)
			if err != nil {
				return
			}
			all.Write(buf[:n])
			if strings.HasSuffix(all.String(), ":") {
				heard <- all.String()
			}
		}
	}()
	result, err := Stream(t.Context(), path, "tell", map[string]int{"x": 1}, w)
	w.Close()
	<-heard
	if err != nil || string(result) != "[]" || all.String() != `about {"x":1}: much` {
		t.Errorf("%q, result %s, %v", all.String(), result, err)
	}
}

func TestStreamFails(t *testing.T) {
	full := errors.New("the paper is used up")
	early, _ := streaming(t, func(context.Context, json.RawMessage, io.Writer) (any, error) { return nil, full })
	late, _ := streaming(t, func(_ context.Context, _ json.RawMessage, w io.Writer) (any, error) {
		fmt.Fprint(w, "some")
		return nil, full
	})
	for path, told := range map[string]string{early: "", late: "some"} {
		var got bytes.Buffer
		_, err := Stream(t.Context(), path, "tell", nil, &got)
		var failed *FailedError
		if !errors.As(err, &failed) || failed.Error() != full.Error() || !strings.HasSuffix(err.Error(), full.Error()) {
			t.Errorf("error %v after %q, want %v of the daemon's", err, told, full)
		}
		if got.String() != told {
			t.Errorf("it told %q, want %q", &got, told)
		}
	}
	if _, err := Stream(t.Context(), early, "paint", nil, io.Discard); !errors.Is(err, ErrUnknown) {
		t.Errorf("another command: %v", err)
	}
	if _, err := Stream(t.Context(), early+"x", "tell", nil, io.Discard); !errors.Is(err, ErrNobody) {
		t.Errorf("no socket: %v", err)
	}
	if _, err := Stream(t.Context(), early, "tell", func() {}, io.Discard); err == nil {
		t.Error("an argument that cannot be told: no error")
	}
}

// TestStreamEnds ends the client, and then the server, during a stream. It expects an error at
// the other side.
func TestStreamEnds(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan error, 1)
	path, s := streaming(t, func(ctx context.Context, _ json.RawMessage, w io.Writer) (any, error) {
		fmt.Fprint(w, "some")
		begun <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	tell := func() {
		_, err := Stream(ctx, path, "tell", nil, io.Discard)
		failed <- err
	}
	go tell()
	<-begun
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("an asker that goes: %v", err)
	}
	<-ended
	ctx = t.Context()
	go tell()
	<-begun
	s.Close()
	err := <-failed
	if !errors.Is(err, errCutOff) {
		t.Fatalf("a process that ends: %v", err)
	}
	testenv.Explained(t, err.Error())
	<-ended
}
