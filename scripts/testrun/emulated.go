package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// panicOfLockup is what a guest's kernel says when it ends because one of its
// processors has not scheduled for a minute (ci/softroce/qemu.sh asks for that).
const panicOfLockup = "Kernel panic - not syncing: softlockup"

// causeOf is why a guest's kernel has died whose console that is, if that is the
// emulation's doing as far as is known.
func causeOf(console []byte) string {
	switch {
	case bytes.Contains(console, []byte(panicOfLockup)):
		return "the kernel of its guest locked up"
	case trapOfNothing(console):
		return "an emulated processor ran an instruction that was not there"
	}
	return ""
}

// trapOfNothing finds a trap behind an int3 (0xcc) where there is none: of the bytes around
// the instruction pointer, which is the one in angle brackets, the one before is another.
// The kernel writes int3 for a moment over instructions that it is about to change, and
// takes it away only when each processor has seen that, so that an emulated processor has
// run what is no longer in its memory.
func trapOfNothing(console []byte) bool {
	_, trap, ok := bytes.Cut(console, []byte("Oops: int3: "))
	_, code, _ := bytes.Cut(trap, []byte(" Code: "))
	before, _, at := bytes.Cut(code, []byte(" <"))
	return ok && at && !bytes.HasSuffix(before, []byte("cc"))
}

// inGuest adds the results of a part of the layer that runs in the harness under that
// name. If the guest's kernel dies of the emulation, the part runs once more, once in a
// layer. The report says so, and build/guest-NAME.log keeps what the kernel said.
func (r *runner) inGuest(name string, try func() (*collector, error)) error {
	part, err := try()
	if err == nil && part.failed() && r.repeats(name) {
		part, err = try()
	}
	r.add(part)
	return err
}

// repeats reports whether what ran under that name is to run again.
func (r *runner) repeats(name string) bool {
	console, err := os.ReadFile(filepath.Join(buildDir, "softroce", name, "console.log"))
	cause := causeOf(console)
	if err != nil || cause == "" {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.repeated != "" {
		return false
	}
	r.repeated = fmt.Sprintf("repeated %-10s %s: %s", r.layer, name, cause)
	if err := os.WriteFile(filepath.Join(buildDir, "guest-"+name+".log"), console, 0o666); err != nil {
		fmt.Fprintln(r.w, "     ", err)
	}
	fmt.Fprintf(r.w, "%s: its tests run again in another\n", r.repeated)
	return true
}
