package statussock

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// FuzzArgument sends arguments of a command. It expects an argument that is not too long to be
// passed on unchanged, and every answer to be JSON.
func FuzzArgument(f *testing.F) {
	f.Add(`{"number":1}`)
	f.Add("")
	f.Add("[")
	f.Add(strings.Repeat("x", maxArgument+1))
	f.Fuzz(func(t *testing.T, body string) {
		var got []byte
		c := Command{Name: "x", RunWith: func(_ context.Context, argument json.RawMessage) (any, error) {
			got = argument
			var v any
			if err := json.Unmarshal(argument, &v); err != nil {
				return nil, err
			}
			return v, nil
		}}
		w := httptest.NewRecorder()
		c.serve(w, httptest.NewRequest(http.MethodPost, "/command/x", strings.NewReader(body)))
		if len(body) > maxArgument && (got != nil || w.Code == http.StatusOK) {
			t.Errorf("%d bytes were taken", len(body))
		}
		if len(body) <= maxArgument && string(got) != body {
			t.Errorf("%q arrived as %q", body, got)
		}
		if !json.Valid(w.Body.Bytes()) {
			t.Errorf("%q was answered with %q", body, w.Body)
		}
	})
}

// FuzzAnswer reads the answers of a process that is no daemon. It expects Read to return JSON or
// an error.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 409 Conflict\r\n\r\n{\"error\":\"no\"}",
		"HTTP/1.1 404 Not Found\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "HTTP/1.1 409 Conflict\r\n\r\n[]",
		"SSH-2.0-x\r\n", "",
	} {
		f.Add(s)
	}
	path := filepath.Join(f.TempDir(), "x.sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { ln.Close() })
	var answer atomic.Pointer[string] // also to a client that follows a redirection
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if req, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				_, _ = io.Copy(io.Discard, req.Body)
			}
			_, _ = io.WriteString(c, *answer.Load())
			c.Close()
		}
	}()
	f.Fuzz(func(t *testing.T, text string) {
		answer.Store(&text)
		raw, err := Read(t.Context(), path)
		if err == nil && !json.Valid(raw) {
			t.Errorf("%q was taken for %q", text, raw)
		}
		if errors.Is(err, ErrNobody) {
			t.Errorf("%q is nobody's answer", text)
		}
	})
}
