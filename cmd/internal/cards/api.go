package cards

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// AgentSocket is what the status socket of an agent is called, which has the API.
const AgentSocket = "agent"

// Root is where the cards are in API v1:
//
//	GET    /v1/cards         all cards: a List
//	GET    /v1/cards/NAME    a card: an Info
//	PUT    /v1/cards/NAME    make a card of a Spec, and answer with its Info
//	DELETE /v1/cards/NAME    remove a card
//
// What fails is answered with a Failure.
const Root = "/v1/cards"

// List is the answer about all cards, by name.
type List struct {
	Cards []Info `json:"cards"`
}

// Failure is the answer to a request that failed.
type Failure struct {
	Code  Code   `json:"code" jsonschema:"enum=invalid,enum=conflict,enum=full,enum=unknown,enum=stopping,enum=failed"`
	Error string `json:"error"`
	// Field is what is wrong in the Spec.
	Field string `json:"field,omitempty"`
}

// Code says what kind of failure it is.
type Code string

// The codes.
const (
	Invalid  Code = "invalid"  // the request; Field says where
	Conflict Code = "conflict" // there is another card of that name
	Full     Code = "full"     // no card more
	Unknown  Code = "unknown"  // there is no such card
	Stopping Code = "stopping" // the agent ends; another one may start
	Broken   Code = "failed"   // the card cannot be made, or removed
)

// statuses are those of HTTP.
var statuses = map[Code]int{
	Invalid: http.StatusBadRequest, Conflict: http.StatusConflict, Full: http.StatusInsufficientStorage,
	Unknown: http.StatusNotFound, Stopping: http.StatusServiceUnavailable, Broken: http.StatusInternalServerError,
}

// failureOf is the answer about an error.
func failureOf(err error) Failure {
	f := Failure{Code: Broken, Error: err.Error()}
	var field *FieldError
	var conflict *ConflictError
	switch {
	case errors.As(err, &field):
		f.Code, f.Field = Invalid, field.Field
	case errors.As(err, &conflict):
		f.Code, f.Field = Conflict, conflict.Field
	case errors.Is(err, ErrFull):
		f.Code = Full
	case errors.Is(err, errUnknown):
		f.Code = Unknown
	case errors.Is(err, ErrStopping):
		f.Code = Stopping
	}
	return f
}

// errUnknown is about a card that there is not.
var errUnknown = errors.New("there is no such card")

// maxSpec is the largest Spec in bytes.
const maxSpec = 64 << 10

// API serves API v1.
func API(s *Set) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Root, func(w http.ResponseWriter, _ *http.Request) { answer(w, List{s.List()}, nil) })
	mux.HandleFunc("GET "+Root+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		i, there := s.Get(r.PathValue("name"))
		if !there {
			answer(w, nil, fmt.Errorf("card %q: %w", r.PathValue("name"), errUnknown))
			return
		}
		answer(w, i, nil)
	})
	mux.HandleFunc("PUT "+Root+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		spec, err := readSpec(w, r)
		var i Info
		if err == nil {
			i, _, err = s.Add(r.Context(), spec)
		}
		answer(w, i, err)
	})
	mux.HandleFunc("DELETE "+Root+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, struct{}{}, s.Del(r.Context(), r.PathValue("name")))
	})
	return mux
}

// readSpec reads a request. Its name need not be repeated in the body.
func readSpec(w http.ResponseWriter, r *http.Request) (spec Spec, err error) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSpec))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return spec, &FieldError{"body", fmt.Sprintf("has more than %d bytes", large.Limit)}
	}
	if err != nil {
		return spec, fmt.Errorf("read the request: %w", err)
	}
	if spec, err = parseSpec(text); err != nil {
		return spec, err
	}
	name := r.PathValue("name")
	if spec.Name == "" {
		spec.Name = name
	}
	if spec.Name != name {
		return spec, &FieldError{"name", fmt.Sprintf("%q is not that of the path, %q", spec.Name, name)}
	}
	return spec, nil
}

// parseSpec parses the body of a request.
func parseSpec(text []byte) (spec Spec, err error) {
	err = decode(text, &spec)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		err = &FieldError{wrong.Field, fmt.Sprintf("is a %s, and must be of type %v", wrong.Value, wrong.Type)}
	case err != nil:
		err = &FieldError{"body", err.Error()}
	}
	return spec, err
}

// answer answers with what, or with err.
func answer(w http.ResponseWriter, what any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		f := failureOf(err)
		w.WriteHeader(statuses[f.Code])
		what = f
	}
	// An error here is the client's, which went away.
	_ = json.NewEncoder(w).Encode(what)
}
