package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/protocol"
)

// show prints what a command has found: v as JSON, or by text for people.
func show(w io.Writer, asJSON bool, v any, text func(io.Writer) error) error {
	if asJSON {
		return printJSON(w, v)
	}
	return text(w)
}

// line returns a function that prints words as one line.
func line(words ...any) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := fmt.Fprintln(w, words...)
		return err
	}
}

// output is the standard output of a command. It keeps the first error, for what is printed without
// looking at errors, such as help.
type output struct {
	io.Writer
	err error
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// fileOf returns the file that w writes to, or nil.
func fileOf(w io.Writer) *os.File {
	if o, ok := w.(*output); ok {
		w = o.Writer
	}
	file, _ := w.(*os.File)
	return file
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// version is set by the linker.
var version = "devel"

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  atMost(0),
		RunE: func(c *cobra.Command, _ []string) error {
			return show(c.OutOrStdout(), asJSON, struct {
				Version  string `json:"version"`
				Protocol int    `json:"protocol"`
			}{version, protocol.Version}, line("splitnic version", version))
		},
	}
	boolVar(c.Flags(), &asJSON, "json", false, "print JSON, with the version of the protocol")
	return c
}
