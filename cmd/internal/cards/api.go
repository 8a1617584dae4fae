package cards

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/splitnic/splitnic/internal/statussock"
)

// AgentSocket is the name of the status socket of an agent. It also serves the API.
const AgentSocket = "agent"

// Root is the path of the cards in API v1:
//
//	GET    /v1/cards         all cards: a List
//	GET    /v1/cards/NAME    a card: an Info
//	PUT    /v1/cards/NAME    make a card from a Spec, and answer with its Info
//	DELETE /v1/cards/NAME    remove a card
//
// The answer to a request that fails is a Failure.
const Root = "/v1/cards"

// List is the answer about all cards, sorted by name.
type List struct {
	Cards []Info `json:"cards"`
}

// Failure is the answer to a request that failed.
type Failure struct {
	Code  Code   `json:"code" jsonschema:"enum=invalid,enum=conflict,enum=full,enum=unknown,enum=stopping,enum=failed"`
	Error string `json:"error"`
	// Field is the field of the Spec that is wrong.
	Field string `json:"field,omitempty"`
}

// Code is the kind of a failure.
type Code string

// The values of Code.
const (
	Invalid  Code = "invalid"  // the request is invalid; see Field
	Conflict Code = "conflict" // a different card has that name
	Full     Code = "full"     // the agent has its maximum number of cards
	Unknown  Code = "unknown"  // there is no such card
	Stopping Code = "stopping" // the agent is ending; another one may start
	Broken   Code = "failed"   // the card cannot be made or removed
)

// statuses has the HTTP status of each code.
var statuses = map[Code]int{
	Invalid: http.StatusBadRequest, Conflict: http.StatusConflict, Full: http.StatusInsufficientStorage,
	Unknown: http.StatusNotFound, Stopping: http.StatusServiceUnavailable, Broken: http.StatusInternalServerError,
}

func failureOf(err error) Failure {
	f := Failure{Code: Broken, Error: err.Error()}
	var field *FieldError
	var conflict *ConflictError
	switch {
	case errors.As(err, &field):
		f.Code, f.Field = Invalid, field.Field
	case errors.As(err, &conflict):
		f.Code, f.Field = Conflict, conflict.Field
	case errors.Is(err, errFull):
		f.Code = Full
	case errors.Is(err, errUnknown):
		f.Code = Unknown
	case errors.Is(err, errStopping):
		f.Code = Stopping
	}
	return f
}

// errUnknown is wrapped by errors about a card that does not exist.
var errUnknown = errors.New("there is no such card")

// maxSpec is the maximum size of a Spec in a request, in bytes.
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

// readSpec reads a request. The body may omit the name, which the path has.
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
	spec.Name = cmp.Or(spec.Name, name)
	if spec.Name != name {
		return spec, &FieldError{"name", fmt.Sprintf("%q is not that of the path, %q", spec.Name, name)}
	}
	return spec, nil
}

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
	// An error here means that the client has disconnected.
	_ = json.NewEncoder(w).Encode(what)
}

// Client sends requests to the agent whose socket has that path. If the agent has answered with
// an error, the client's error wraps Refused. Otherwise it wraps an error of package statussock.
type Client string

// patience is the time-out for an answer. It suffices for a busy agent.
const patience = 2 * time.Minute

// Refused is an error with which an agent has answered.
type Refused struct{ Failure }

func (e *Refused) Error() string { return e.Failure.Error }

// Add makes the agent make a card.
func (c Client) Add(ctx context.Context, spec *Spec) (i Info, err error) {
	body, err := json.Marshal(spec)
	if err != nil {
		return i, err
	}
	return i, c.do(ctx, "card add", http.MethodPut, spec.Name, body, &i)
}

// Del makes the agent remove a card. It is no error if there is no such card.
func (c Client) Del(ctx context.Context, name string) error {
	return c.do(ctx, "card del", http.MethodDelete, name, nil, &struct{}{})
}

// Get asks for a card. If there is no such card, the error wraps a Refused with code Unknown.
func (c Client) Get(ctx context.Context, name string) (i Info, err error) {
	return i, c.do(ctx, "card", http.MethodGet, name, nil, &i)
}

// List asks for all cards. raw is the answer in JSON, and l the same parsed.
func (c Client) List(ctx context.Context) (l List, raw json.RawMessage, err error) {
	if err = c.do(ctx, "card list", http.MethodGet, "", nil, &raw); err == nil {
		err = json.Unmarshal(raw, &l)
	}
	return l, raw, err
}

func (c Client) do(ctx context.Context, what, method, card string, body []byte, result any) error {
	path := Root
	if card != "" {
		path += "/" + url.PathEscape(card)
	}
	status, raw, err := statussock.Call(ctx, string(c), method, path, body, patience)
	if err == nil && status != http.StatusOK {
		var f Failure
		if err = json.Unmarshal(raw, &f); err == nil {
			err = &Refused{f}
		}
	}
	if err == nil {
		err = json.Unmarshal(raw, result)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
