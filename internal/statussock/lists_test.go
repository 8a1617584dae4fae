package statussock

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"
)

type inner struct {
	List []int            `json:"list"`
	Map  map[string][]int `json:"map"`
	Left []string         `json:"left,omitempty"`
	Raw  json.RawMessage  `json:"raw,omitempty"`
	Next *inner           `json:"next,omitempty"`
	Any  any              `json:"any,omitempty"`
	At   time.Time        `json:"at,omitzero"`
	Many []inner          `json:"many,omitempty"`
}

// TestListsAreNeverNull expects nil lists and maps in a status and in an answer to be [] and {} in
// JSON.
func TestListsAreNeverNull(t *testing.T) {
	status := inner{Next: &inner{Map: map[string][]int{"a": nil}}, Any: inner{}, Many: []inner{{}}}
	path := filepath.Join(t.TempDir(), "s")
	s, err := Serve(path, func() any { return status },
		Command{Name: "list", Run: func(context.Context) (any, error) { return []string(nil), nil }},
		Command{Name: "map", Run: func(context.Context) (any, error) { return map[string]uint64(nil), nil }},
		Command{Name: "nothing", Run: func(context.Context) (any, error) { return nil, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const empty = `{"list":[],"map":{}}`
	got, err := Read(t.Context(), path)
	want := `{"list":[],"map":{},"next":{"list":[],"map":{"a":[]}},"any":` + empty + `,"many":[` + empty + `]}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	for command, want := range map[string]string{"list": "[]", "map": "{}", "nothing": "null"} {
		if got, err := Do(t.Context(), path, command); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", command, got, err, want)
		}
	}
	if status.Next.List != nil || status.Many[0].List != nil {
		t.Error("what the status has was changed")
	}
}
