#!/bin/bash
# node.sh PROGRAM [ARGS...]: runs PROGRAM. Its standard input and output are the serial
# port of run's --agent; its standard error is that of the run.
# shellcheck source=ci/softroce/topology.sh
. ci/softroce/topology.sh

# find_port sets port to the device of the serial port.
find_port() {
	local f name
	for f in /sys/class/virtio-ports/*/name; do
		if ! read -r name 2>/dev/null <"$f" || [ "$name" != splitnic.agent ]; then continue; fi
		f=${f%/name}
		port=/dev/${f##*/}
		[ -c "$port" ] && return
	done
	return 1
}

modprobe virtio_console || exit
poll 20 find_port || {
	echo "node: this guest has no agent's port: start it with --agent" >&2
	exit 1
}
exec "$@" <>"$port" >&0
