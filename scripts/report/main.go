// Command report turns what the project's scripts measured into figures and
// documents. A file of results has a line for each measurement, which the
// script appended when it had made it.
//
//	report demo RESULTS JSON        the demonstration's table and document
//	report bench RESULTS DIR        the benchmarks' tables, JSON and plots, in DIR
//	report markdown JSON            the tables of results.json, for docs/benchmarks.md
//	report iperf tcp|udp            the figures in iperf3's JSON on standard input
//	report ping                     the figure in ping's output on standard input
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// commands are the sub-commands, each with the number of its arguments.
var commands = map[string]struct {
	args int
	run  func(args []string) error
}{
	"demo":     {2, func(a []string) error { return demo(a[0], a[1]) }},
	"bench":    {2, func(a []string) error { return bench(a[0], a[1]) }},
	"markdown": {1, func(a []string) error { return markdown(a[0]) }},
	"iperf":    {1, func(a []string) error { return filter(iperf[a[0]]) }},
	"ping":     {0, func([]string) error { return filter(ping) }},
}

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	c, ok := commands[os.Args[1]]
	args := os.Args[2:]
	if !ok || len(args) != c.args || os.Args[1] == "iperf" && iperf[args[0]] == nil {
		usage()
	}
	if err := c.run(args); err != nil {
		fmt.Fprintf(os.Stderr, "report %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: report demo RESULTS JSON | bench RESULTS DIR | markdown JSON | iperf tcp|udp | ping")
	os.Exit(2)
}

// parsed is what parse makes of the file at path.
func parsed[T any](path string, parse func(io.Reader) (T, error)) (T, error) {
	f, err := os.Open(path)
	if err != nil {
		var none T
		return none, err
	}
	defer f.Close()
	v, err := parse(f)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return v, err
}

func writeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// filter prints what f makes of standard input.
func filter(f func(io.Reader) (string, error)) error {
	s, err := f(os.Stdin)
	if err != nil {
		return err
	}
	_, err = fmt.Println(s)
	return err
}
