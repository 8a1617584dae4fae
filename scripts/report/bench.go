package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// bench writes results.json, results.txt, results.md and the plots into dir,
// and the tables to standard output.
func bench(in, dir string) error {
	rs, err := parsed(in, summarize)
	if err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(dir, "results.json"), rs); err != nil {
		return err
	}
	var text, md bytes.Buffer
	for _, t := range rs.sheets() {
		if err := t.text(&text); err != nil {
			return err
		}
		if err := t.markdown(&md); err != nil {
			return err
		}
	}
	for name, b := range map[string]*bytes.Buffer{"results.txt": &text, "results.md": &md} {
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	for _, p := range rs.plots() {
		if err := p.draw(filepath.Join(dir, p.name+".svg")); err != nil {
			return err
		}
	}
	_, err = text.WriteTo(os.Stdout)
	return err
}

// markdown prints the tables of a results.json.
func markdown(path string) error {
	rs, err := parsed(path, func(r io.Reader) (rs rows, err error) {
		err = json.NewDecoder(r).Decode(&rs)
		return rs, err
	})
	if err != nil {
		return err
	}
	for _, t := range rs.sheets() {
		if err := t.markdown(os.Stdout); err != nil {
			return fmt.Errorf("standard output: %w", err)
		}
	}
	return nil
}
