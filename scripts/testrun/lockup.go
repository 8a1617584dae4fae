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

// inGuest adds the results of a part of the layer that runs in the harness under that
// name. If the guest's kernel locks up, the part runs once more, once in a layer: that
// was seen once, under emulation, and why is not known. The
// report says so, and build/lockup-NAME.log keeps what the kernel said.
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
	if err != nil || !bytes.Contains(console, []byte(panicOfLockup)) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.repeated != "" {
		return false
	}
	r.repeated = fmt.Sprintf("repeated %-10s %s: the kernel of its guest locked up", r.layer, name)
	if err := os.WriteFile(filepath.Join(buildDir, "lockup-"+name+".log"), console, 0o666); err != nil {
		fmt.Fprintln(r.w, "     ", err)
	}
	fmt.Fprintf(r.w, "%s: its tests run again in another\n", r.repeated)
	return true
}
