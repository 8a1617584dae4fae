package main

import (
	"encoding/json"
	"io"
)

// printJSON prints v for programs.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// orNone is s, or "none" in place of nothing.
func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
