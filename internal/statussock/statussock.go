// Package statussock serves a daemon's status as JSON on a unix socket, and
// reads it from there. It also carries commands to the daemon. Whoever may
// connect may know, and command: the socket is for its owner only.
package statussock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Dir is where daemons put their sockets unless they are told otherwise.
const Dir = "/run/splitnic"

const suffix = ".sock"

const contentType = "application/json"

// maxPath is the longest path of a socket in bytes: sun_path of unix(7) without
// the zero at its end.
const maxPath = 107

// ErrNobody is wrapped by errors of Read and Do about a socket that is missing,
// or left over.
var ErrNobody = errors.New("no process serves")

// ErrLeft is wrapped, beside ErrNobody, by errors of Read and Do about a socket that is left
// over: its process was killed.
var ErrLeft = errors.New("the process that made this socket was killed; start it again, or remove the socket")

// ErrSilent is wrapped by errors of Read and Do about a process that does not answer: it is
// stopped, or hangs.
var ErrSilent = errors.New("no answer")

// ErrUnknown is wrapped by errors of Do about a command that the daemon does
// not have.
var ErrUnknown = errors.New("the process there has no such command")

// Path is the socket of the daemon with that name, such as host-sn0.
func Path(name string) string { return filepath.Join(Dir, name+suffix) }

// Server serves the status of one daemon.
type Server struct {
	http *http.Server
	done chan struct{}
}

// Command is something that a daemon does when it is told to.
type Command struct {
	Name string // a word
	// Run does it and returns what to answer, for JSON. Several may run at a
	// time. ctx ends when the asker goes away.
	Run func(ctx context.Context) (any, error)
	// RunWith is Run for a command with an argument: JSON, or nothing.
	RunWith func(ctx context.Context, argument json.RawMessage) (any, error)
	// RunTo is RunWith for a command that tells something while it runs, by w. What it
	// returns comes after that.
	RunTo func(ctx context.Context, argument json.RawMessage, w io.Writer) (any, error)
}

// maxArgument is the largest argument in bytes.
const maxArgument = 64 << 10

// failure is the answer to a command that failed.
type failure struct {
	Error string `json:"error"`
}

// serve answers the command.
func (c Command) serve(w http.ResponseWriter, r *http.Request) {
	if c.RunTo != nil {
		c.stream(w, r)
		return
	}
	answer, err := c.run(w, r)
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", contentType)
	// An error here is the client's, which went away.
	_ = json.NewEncoder(w).Encode(filled(answer))
}

func (c Command) run(w http.ResponseWriter, r *http.Request) (any, error) {
	if c.RunWith == nil {
		return c.Run(r.Context())
	}
	argument, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxArgument))
	if err != nil {
		return nil, fmt.Errorf("read the argument: %w", err)
	}
	return c.RunWith(r.Context(), argument)
}

// elsewhere is what to use where a socket cannot be.
const elsewhere = "put it elsewhere with --status-socket"

// Serve listens on the socket at path and answers each request with what
// status returns then, as JSON, or carries out one of the commands. A socket left over by a process that was killed
// is replaced; one that somebody listens on is not.
func Serve(path string, status func() any, commands ...Command) (*Server, error) {
	return ServeAPI(path, nil, status, commands...)
}

// apiRoot is where an API is on a socket.
const apiRoot = "/v1/"

// ServeAPI is Serve for a daemon that has an API besides, unless that is nil, which gets
// what is asked below /v1/.
func ServeAPI(path string, api http.Handler, status func() any, commands ...Command) (*Server, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("status socket %s: the path has %d bytes, at most %d are possible; %s", path, len(path),
			maxPath, elsewhere)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("status socket: %w; %s", err, elsewhere)
	}
	ln, err := listen(path)
	if errors.Is(err, syscall.EADDRINUSE) {
		if served(path) {
			return nil, fmt.Errorf("status socket %s: another process serves it; end that one, or give this one another "+
				"--status-socket: %w", path, err)
		}
		if err := Discard(path); err != nil {
			return nil, err
		}
		ln, err = listen(path)
	}
	if err != nil {
		return nil, fmt.Errorf("status socket: %w; %s", err, elsewhere)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		// An error here is the client's, which went away.
		_ = json.NewEncoder(w).Encode(filled(status()))
	})
	for _, c := range commands {
		mux.HandleFunc("POST /command/"+c.Name, c.serve)
	}
	if api != nil {
		mux.Handle(apiRoot, api)
	}
	s := &Server{http: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(ln) // always http.ErrServerClosed or the listener's end
	}()
	return s, nil
}

// served reports whether somebody listens on a socket.
func served(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// Discard removes the socket that a process has left that was killed, if there is one. One
// that somebody listens on stays.
func Discard(path string) error {
	if served(path) {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("status socket: remove what a killed process left: %w", err)
	}
	return nil
}

// listen makes a socket for its owner only, from its first moment on: what a
// socket has when it is bound is what the file gets (unix(7)).
func listen(path string) (net.Listener, error) {
	cfg := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if controlErr := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) }); controlErr != nil {
			return controlErr
		}
		return err
	}}
	return cfg.Listen(context.Background(), "unix", path)
}

// Close stops serving and removes the socket.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.done
	return err
}

// patience is how long a process may take to tell its status, which takes one that
// is well some milliseconds.
const patience = 5 * time.Second

// Read fetches the status from the socket at path, or gives up after some seconds:
// a stopped process must not keep a user from asking the others.
func Read(ctx context.Context, path string) (json.RawMessage, error) {
	raw, err := read(ctx, path, patience)
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	return raw, nil
}

func read(ctx context.Context, path string, patience time.Duration) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, silence(patience))
	defer cancel()
	raw, err := ask(ctx, path, http.MethodGet, "/status", nil)
	return raw, silent(ctx, path, err)
}

// Do has the daemon at path carry out a command, and returns its answer.
func Do(ctx context.Context, path, command string) (json.RawMessage, error) {
	return do(ctx, path, command, nil)
}

// DoWith is Do with an argument, for JSON.
func DoWith(ctx context.Context, path, command string, argument any) (json.RawMessage, error) {
	raw, err := json.Marshal(argument)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	return do(ctx, path, command, raw)
}

func do(ctx context.Context, path, command string, argument []byte) (json.RawMessage, error) {
	// A command may take its time, but not with a process that does nothing at all.
	if _, err := read(ctx, path, patience); errors.Is(err, ErrSilent) {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	raw, err := ask(ctx, path, http.MethodPost, "/command/"+command, argument)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	return raw, nil
}

// Call asks the API of the daemon at path, and returns the status of HTTP and what there
// is in JSON. A daemon without an API is ErrUnknown. It waits until ctx is done, or for so
// long at most, after which the error wraps ErrSilent.
func Call(
	ctx context.Context, path, method, what string, body []byte, patience time.Duration,
) (status int, raw json.RawMessage, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, silence(patience))
	defer cancel()
	status, raw, err = call(ctx, path, method, what, body)
	return status, raw, silent(ctx, path, err)
}

// silence is the error about a process that does not answer for so long.
func silence(patience time.Duration) error { return fmt.Errorf("%w within %v", ErrSilent, patience) }

// silent explains err if it came about by silence, the cause of ctx.
func silent(ctx context.Context, path string, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), ErrSilent) {
		return fmt.Errorf("%s: %w; the process there is stopped or hangs (`ss -xlp` shows which it is)",
			path, context.Cause(ctx))
	}
	return err
}

// ask sends one request to the socket at path.
func ask(ctx context.Context, path, method, what string, body []byte) (json.RawMessage, error) {
	status, raw, err := call(ctx, path, method, what, body)
	if err == nil && status != http.StatusOK {
		err = failed(path, raw)
	}
	if err != nil {
		return nil, err
	}
	return raw, nil
}

// failed is the error that a daemon has answered with.
func failed(path string, raw json.RawMessage) error {
	var f failure
	err := json.Unmarshal(raw, &f)
	if err == nil {
		err = errors.New(f.Error)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// transport connects to the socket at path.
func transport(path string) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}
}

// call sends one request to the socket at path. What is not found, and not told in JSON,
// the daemon does not have.
func call(ctx context.Context, path, method, what string, body []byte) (status int, raw json.RawMessage, err error) {
	t := transport(path)
	defer t.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, "http://splitnic"+what, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return 0, nil, unanswered(path, err)
	}
	defer resp.Body.Close()
	raw, err = answer(path, resp)
	return resp.StatusCode, raw, err
}

// answer is what a daemon has answered in JSON.
func answer(path string, resp *http.Response) (raw json.RawMessage, err error) {
	if resp.StatusCode == http.StatusNotFound && resp.Header.Get("Content-Type") != contentType {
		return nil, fmt.Errorf("%s: %w", path, ErrUnknown)
	}
	if err := json.NewDecoder(resp.Body).Decode(&raw); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return raw, nil
}

// unanswered is the error about a socket that cannot be asked.
func unanswered(path string, err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w %s: %w", ErrNobody, path, ErrLeft)
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w %s", ErrNobody, path)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s is for the user who runs it: ask as that user, or by sudo: %w", path, os.ErrPermission)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// List finds the sockets of the daemons on this machine, by name.
func List() ([]string, error) {
	entries, err := os.ReadDir(Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	var paths []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			paths = append(paths, filepath.Join(Dir, e.Name()))
		}
	}
	slices.Sort(paths)
	return paths, nil
}
