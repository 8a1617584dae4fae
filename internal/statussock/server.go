package statussock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Server serves the status of one daemon.
type Server struct {
	http *http.Server
	done chan struct{}
}

// Serve listens on the socket at path. It answers each request with the current result of status,
// as JSON, or executes one of the commands. A socket left over by a killed process is replaced. A
// socket on which a process listens is not replaced.
func Serve(path string, status func() any, commands ...Command) (*Server, error) {
	return ServeAPI(path, nil, status, commands...)
}

// ServeAPI is Serve for a daemon that also has an API, which gets the requests below /v1/. If api
// is nil there is none.
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
		answerJSON(w, http.StatusOK, filled(status()))
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
		_ = s.http.Serve(ln) // always http.ErrServerClosed, or the listener has ended
	}()
	return s, nil
}

// Close stops serving and removes the socket.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.done
	return err
}

// maxPath is the longest path of a socket in bytes: sun_path of unix(7) without
// the zero at its end.
const maxPath = 107

// elsewhere is the remedy for a path at which the socket cannot be.
const elsewhere = "put it elsewhere with --status-socket"

// served reports whether a process listens on the socket at path.
func served(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// isSocket reports whether there is a socket at path, or nothing.
func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err != nil || info.Mode().Type() == os.ModeSocket
}

// Discard removes the socket at path that a killed process has left, if there is one. A socket on
// which a process listens stays. A file that is not a socket stays too, and is an error.
func Discard(path string) error {
	if served(path) {
		return nil
	}
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("status socket %s: there is something that is no socket; %s", path, elsewhere)
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("status socket: remove what a killed process left: %w", err)
	}
	return nil
}

// listen makes a socket for its owner only, from its first moment on: the file gets the
// permissions that the socket has when it is bound (unix(7)).
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
