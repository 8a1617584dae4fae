# shellcheck shell=bash
# shellcheck disable=SC2154 # softroce_dir is the caller's
# What the kernel's messages say of a run. Sourced by run and exec, after
# scripts/lib.sh.

# kernel_fine FILE prints the complaints in FILE, messages of the kernel, and fails if
# there are any besides those of a known defect.
kernel_fine() {
	local found known
	found=$("$softroce_dir/complaints" <"$1")
	known=$(grep '^known: ' <<<"$found")
	found=$(grep -v '^known: ' <<<"$found")
	if [ -n "$known" ]; then
		say "softroce: the kernel met a defect of its own that is known (see ci/softroce/complaints):"
		printf '%s\n' "$known" >&2
	fi
	if [ -z "$found" ]; then return; fi
	say "softroce: the kernel complained while the script ran (see build/softroce/last/dmesg.txt):"
	printf '%s\n' "$found" | head -n 20 >&2
	return 1
}

# emulation_killed FILE prints why the kernel whose console is in FILE died, if the
# emulation of its processors is known to cause that, and fails otherwise. Two causes are
# known. A processor has not scheduled for a minute, which panics as asked for (qemu.sh).
# Or a processor trapped at an int3 (0xcc) that is not in memory: the console shows the
# code around the instruction pointer, with the byte there in angle brackets, and the
# byte before is not cc. The kernel writes int3 for a moment over instructions that it
# is about to change, and removes it when each processor has seen the change: the
# processor has run an instruction that was no longer there.
emulation_killed() {
	if grep -qa 'Kernel panic - not syncing: softlockup' "$1"; then
		echo "the kernel of the guest locked up"
	elif awk '/Oops: int3: / { trap = 1 }
		trap && match($0, / Code: [0-9a-f ]* </) { exit substr($0, RSTART, RLENGTH) !~ /cc <$/ }' "$1"; then
		return 1
	else
		echo "an emulated processor ran an instruction that was not there"
	fi
}
