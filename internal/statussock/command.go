package statussock

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

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

// stream answers a command that has RunTo.
func (c Command) stream(w http.ResponseWriter, r *http.Request) {
	argument, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxArgument))
	if err != nil {
		refuse(w, fmt.Errorf("read the argument: %w", err))
		return
	}
	out := &streamWriter{w: w, flush: http.NewResponseController(w).Flush}
	result, err := c.RunTo(r.Context(), argument, out)
	if err != nil && !out.begun {
		refuse(w, err)
		return
	}
	out.begin()
	if err != nil {
		w.Header().Set(http.TrailerPrefix+trailerError, err.Error())
		return
	}
	raw, err := json.Marshal(filled(result))
	if err != nil {
		w.Header().Set(http.TrailerPrefix+trailerError, err.Error())
		return
	}
	w.Header().Set(http.TrailerPrefix+trailerResult, string(raw))
}

// refuse answers that a command failed.
func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusConflict)
	// An error here is the client's, which went away.
	_ = json.NewEncoder(w).Encode(failure{err.Error()})
}

// streamWriter sends what is written at once.
type streamWriter struct {
	w     http.ResponseWriter
	flush func() error
	begun bool
}

func (s *streamWriter) begin() {
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", streamType)
		s.w.WriteHeader(http.StatusOK)
	}
}

// Write implements io.Writer.
func (s *streamWriter) Write(b []byte) (int, error) {
	s.begin()
	n, err := s.w.Write(b)
	if err == nil {
		err = s.flush()
	}
	return n, err
}
