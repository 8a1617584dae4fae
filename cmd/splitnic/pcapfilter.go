package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"golang.org/x/net/bpf"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
)

// compileFilter runs tcpdump to compile an expression of pcap-filter(7) for Ethernet frames.
func compileFilter(ctx context.Context, expression string) ([]bpf.RawInstruction, error) {
	var out, complaint bytes.Buffer
	c := exec.CommandContext(ctx, "tcpdump", "-y", "EN10MB", "-ddd", "--", expression)
	c.Stdout, c.Stderr = &out, &complaint
	var failed *exec.ExitError
	switch err := c.Run(); {
	case errors.Is(err, exec.ErrNotFound):
		return nil, exit.With(exit.Missing, fmt.Errorf("--filter: %w: install tcpdump, which compiles the expression, "+
			"or filter in Wireshark", err))
	case errors.As(err, &failed):
		return nil, exit.Usagef("--filter %q: %s", expression, strings.Join(strings.Fields(complaint.String()), " "))
	case err != nil:
		return nil, fmt.Errorf("--filter: %w", err)
	}
	program, err := parseFilter(out.String())
	if err != nil {
		return nil, fmt.Errorf("--filter: what tcpdump has compiled: %w", err)
	}
	return program, nil
}

// maxFilter is the maximum number of instructions of a filter (BPF_MAXINSNS).
const maxFilter = 4096

// parseFilter parses a program in the format of `tcpdump -ddd`: the number of its instructions,
// and a line of four numbers for each.
func parseFilter(text string) ([]bpf.RawInstruction, error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	var n int
	if _, err := fmt.Sscanf(lines[0], "%d", &n); err != nil || n != len(lines)-1 || n < 1 || n > maxFilter {
		return nil, fmt.Errorf("%d lines, and the first one is %.20q", len(lines), lines[0])
	}
	program := make([]bpf.RawInstruction, n)
	for i := range program {
		p := &program[i]
		if _, err := fmt.Sscanf(lines[1+i], "%d %d %d %d", &p.Op, &p.Jt, &p.Jf, &p.K); err != nil {
			return nil, fmt.Errorf("instruction %d, %.40q: %w", i, lines[1+i], err)
		}
	}
	return program, nil
}
