package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// panicOfLockup is the message of a guest's kernel that panics because one of its processors
// has not scheduled for a minute (ci/softroce/qemu.sh asks for that panic).
const panicOfLockup = "Kernel panic - not syncing: softlockup"

// causeOf returns why a guest's kernel died, according to its console, if the emulation is known
// to cause that. Otherwise it returns "".
func causeOf(console []byte) string {
	switch {
	case bytes.Contains(console, []byte(panicOfLockup)):
		return "the kernel of its guest locked up"
	case trapOfNothing(console):
		return "an emulated processor ran an instruction that was not there"
	}
	return ""
}

// trapOfNothing reports whether the console has a trap by an int3 (0xcc) that is not in memory.
// The console shows the code around the instruction pointer, with the byte at the instruction
// pointer in angle brackets. The byte before that one is not cc then. The kernel writes int3
// for a moment over instructions that it is about to change, and removes the int3 only when
// each processor has seen the change. So an emulated processor has run an instruction that was
// no longer in its memory.
func trapOfNothing(console []byte) bool {
	_, trap, ok := bytes.Cut(console, []byte("Oops: int3: "))
	_, code, _ := bytes.Cut(trap, []byte(" Code: "))
	before, _, at := bytes.Cut(code, []byte(" <"))
	return ok && at && !bytes.HasSuffix(before, []byte("cc"))
}

// inGuest adds the results of try, which runs a part of the layer in the harness under this
// name. If the emulation kills the guest's kernel, inGuest calls try once more, for one part of
// a layer only. The report says so, and build/guest-NAME.log keeps the console of the kernel.
func (r *runner) inGuest(name string, try func() (*collector, error)) error {
	part, err := try()
	if err == nil && part.failed() && r.repeats(name) {
		part, err = try()
	}
	r.add(part)
	return err
}

// repeats reports whether the part that ran under this name has to run again. If so, it records
// the repetition and keeps the console.
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
