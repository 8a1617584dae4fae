package statussock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// The answer of a command that tells something for as long as it runs ends with trailers
// of HTTP: its result, or why it failed.
const (
	trailerResult = "Splitnic-Result"
	trailerError  = "Splitnic-Error"
)

// streamType is the content type of what such a command tells.
const streamType = "application/octet-stream"

// ErrCutOff is wrapped by errors of Stream about a process that ended meanwhile.
var ErrCutOff = errors.New("the process there has ended")

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

// Stream has the daemon at path carry out a command, with an argument for JSON, and copies
// what that tells to w until it ends, or ctx does. It returns the command's result.
func Stream(ctx context.Context, path, command string, argument any, w io.Writer) (json.RawMessage, error) {
	raw, err := json.Marshal(argument)
	if err == nil {
		// As in do.
		if _, statusErr := read(ctx, path, patience); errors.Is(statusErr, ErrSilent) {
			err = statusErr
		}
	}
	var result json.RawMessage
	if err == nil {
		result, err = stream(ctx, path, "/command/"+command, raw, w)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	return result, nil
}

func stream(ctx context.Context, path, what string, body []byte, w io.Writer) (json.RawMessage, error) {
	t := transport(path)
	defer t.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://splitnic"+what, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return nil, unanswered(path, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != streamType {
		raw, err := answer(path, resp)
		if err == nil {
			err = failed(path, raw)
		}
		return nil, err
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = ErrCutOff
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if text := resp.Trailer.Get(trailerError); text != "" {
		return nil, fmt.Errorf("%s: %s", path, text)
	}
	return json.RawMessage(resp.Trailer.Get(trailerResult)), nil
}
