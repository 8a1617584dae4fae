package main

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// command returns a command that gets SIGTERM when ctx ends, and then has 10 seconds to clean
// up. It shares the standard error of this process.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = os.Stderr
	return cmd
}
