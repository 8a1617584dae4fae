package cards

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/splitnic/splitnic/internal/statussock"
)

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
