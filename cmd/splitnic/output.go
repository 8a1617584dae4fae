package main

import (
	"encoding/json"
	"io"
)

// printJSON prints v in JSON.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// orNone returns s, or "none" if s is empty.
func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
