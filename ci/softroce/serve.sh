#!/bin/bash
# serve.sh: runs the tests of packages, one after the other, in one run of the harness.
#
# The script of a run with --work. A caller (exec) writes the arguments of package.sh,
# each ended by a NUL, to the file "next" there, and renames that to "job". The answer
# is the output in "output", the kernel's messages in "dmesg.txt", and then the status
# in "status". The run ends when the file "end" is there. One caller at a time.
set -uo pipefail
# shellcheck source=ci/softroce/topology.sh
. ci/softroce/topology.sh

cd "$SPLITNIC_WORK" || exit 1
serve_top=$OLDPWD
serve_number=0

# serve_job runs package.sh with the arguments in the file job. The output goes through a
# pipe, as programs may open /dev/stdout again. Processes that outlive the tests and have
# it open get a second.
serve_job() {
	local args pump i
	mapfile -d '' -t args <job
	rm -f job dmesg.txt
	serve_number=$((serve_number + 1))
	printf 'splitnic: package %d.%d starts\n' $$ "$serve_number" >/dev/kmsg
	serve_pipe=$(mktemp -u)
	mkfifo "$serve_pipe" || exit 1
	cat <"$serve_pipe" >output &
	pump=$!
	(cd "$serve_top" && exec bash "$SPLITNIC_SOFTROCE_DIR/package.sh" "${args[@]}") </dev/null >"$serve_pipe" 2>&1
	serve_rc=$?
	for ((i = 0; i < 20; i++)); do
		kill -0 "$pump" 2>/dev/null || break
		sleep 0.05
	done
	kill "$pump" 2>/dev/null
	wait "$pump" 2>/dev/null
	rm -f "$serve_pipe"
	dmesg | sed -n "/splitnic: package $$.$serve_number starts/,\$p" >dmesg.txt
	printf '%s\n' "$serve_rc" >status.new
	mv status.new status
}

: >ready
until [ -e end ]; do
	if [ -e job ]; then serve_job; else sleep 0.1; fi
done
