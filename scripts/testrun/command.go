package main

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// command returns a command that an interrupt ends as Ctrl-C would, with 10
// seconds to clean up. Its standard error is ours.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = os.Stderr
	return cmd
}
