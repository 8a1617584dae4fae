package statussock

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
)

// Command is a command that a daemon executes on request.
type Command struct {
	Name string // a word
	// Run executes the command and returns the answer, which is encoded as JSON. Several calls
	// may run at a time. ctx is done when the client disconnects.
	Run func(ctx context.Context) (any, error)
	// RunWith is Run for a command with an argument: JSON, or nothing.
	RunWith func(ctx context.Context, argument json.RawMessage) (any, error)
	// RunTo is RunWith for a command with output while it runs, which it writes to w. The result
	// is sent after the output.
	RunTo func(ctx context.Context, argument json.RawMessage, w io.Writer) (any, error)
}

// serve executes the command and sends the answer.
func (c Command) serve(w http.ResponseWriter, r *http.Request) {
	argument, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxArgument))
	if err != nil {
		refuse(w, fmt.Errorf("read the argument: %w", err))
		return
	}
	var result any
	switch {
	case c.RunTo != nil:
		c.stream(r.Context(), w, argument)
		return
	case c.RunWith != nil:
		result, err = c.RunWith(r.Context(), argument)
	default:
		result, err = c.Run(r.Context())
	}
	if err != nil {
		refuse(w, err)
		return
	}
	answerJSON(w, http.StatusOK, filled(result))
}

// stream is serve for a command that has RunTo.
func (c Command) stream(ctx context.Context, w http.ResponseWriter, argument json.RawMessage) {
	out := &streamWriter{w: w, flush: http.NewResponseController(w).Flush}
	result, err := c.RunTo(ctx, argument, out)
	if err != nil && !out.begun {
		refuse(w, err)
		return
	}
	out.begin()
	var raw []byte
	if err == nil {
		raw, err = json.Marshal(filled(result))
	}
	if err != nil {
		w.Header().Set(http.TrailerPrefix+trailerError, err.Error())
		return
	}
	w.Header().Set(http.TrailerPrefix+trailerResult, string(raw))
}

// refuse sends the answer that a command has failed.
func refuse(w http.ResponseWriter, err error) {
	answerJSON(w, http.StatusConflict, failure{err.Error()})
}

func answerJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error means that the client has disconnected
}

// streamWriter sends written data immediately.
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

// filled returns v with empty lists and maps in place of nil ones, so that none is null in JSON.
// The data that v points to may be in use elsewhere, and is copied.
func filled(v any) any {
	if v == nil {
		return nil
	}
	return fill(reflect.ValueOf(v)).Interface()
}

func fill(v reflect.Value) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if c.Field(i).CanSet() {
				c.Field(i).Set(fill(v.Field(i)))
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			break // bytes are not a list
		}
		c.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			c.Index(i).Set(fill(v.Index(i)))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			c.Set(reflect.New(v.Type().Elem()))
			c.Elem().Set(fill(v.Elem()))
		}
	case reflect.Interface:
		if !v.IsNil() {
			c.Set(fill(v.Elem()))
		}
	case reflect.Map:
		c.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
		for it := v.MapRange(); it.Next(); {
			c.SetMapIndex(it.Key(), fill(it.Value()))
		}
	default:
	}
	return c
}
