# shellcheck shell=bash
# Sourced by the project's shell scripts: how they speak and how they give up.

# say prints its arguments as one line on standard error, so that standard
# output stays the caller's.
say() { printf '%s\n' "$*" >&2; }

# die prints one line, prefixed with the script's name, and exits with
# DIE_STATUS (1 when unset).
die() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit "${DIE_STATUS:-1}"
}

# need COMMAND PACKAGE [WHY] dies unless COMMAND is in PATH, naming the Debian
# package that holds it.
need() {
	command -v "$1" >/dev/null 2>&1 && return 0
	die "missing command '$1'${3:+ ($3)}: install it with: apt-get install $2"
}

# nothing_ran LOG reports whether a test binary has said there that it had no
# test to run, which it does not take for a failure.
nothing_ran() { grep -q '^testing: warning: no tests to run' "$1"; }

# tool NAME VERSION PACKAGE builds a tool of this version, once, and prints
# where it is. It is called in the checkout.
tool() {
	local dir=$PWD/build/tools/$1-$2
	if [ ! -x "$dir/$1" ]; then
		say "${0##*/}: building $1 $2"
		mkdir -p build/tools
		GOBIN=$dir go install "$3@$2" >"$dir.log" 2>&1 || { cat "$dir.log" >&2; return 1; }
	fi
	printf '%s\n' "$dir/$1"
}
