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

# tools_dir prints the directory of tools that are built from source. It is outside of the
# checkout, so that another checkout does not build them again.
tools_dir() {
	if [ -n "${SPLITNIC_CACHE:-}" ]; then
		printf '%s\n' "$SPLITNIC_CACHE/tools"
	elif [ -n "${XDG_CACHE_HOME:-}" ]; then
		printf '%s\n' "$XDG_CACHE_HOME/splitnic/tools"
	elif [ -n "${HOME:-}" ] && [ -w "$HOME" ]; then
		printf '%s\n' "$HOME/.cache/splitnic/tools"
	else
		printf '%s\n' "$PWD/build/tools"
	fi
}

# built NAME VERSION COMMAND... prints where a tool of this version is. If no checkout has
# built it with this version of Go yet, COMMAND does, into the directory $GOBIN.
built() {
	local name=$1 dir made
	dir=$(tools_dir)/$1-$2-$(go env GOVERSION) || return
	if [ ! -x "$dir/$name" ]; then
		say "${0##*/}: building $name $2"
		mkdir -p "${dir%/*}" && made=$(mktemp -d "$dir.XXXXXX") && chmod 0755 "$made" || return
		if ! GOBIN=$made "${@:3}" >"$made/log" 2>&1 || [ ! -x "$made/$name" ]; then
			cat "$made/log" >&2
			rm -rf "$made"
			return 1
		fi
		# Two checkouts can build it at the same time; the first one is kept.
		mv -T "$made" "$dir" 2>/dev/null || rm -rf "$made"
	fi
	printf '%s\n' "$dir/$name"
}

# tool NAME VERSION PACKAGE builds the tool in PACKAGE, once, and prints where it is. It is
# called in the checkout. Sources that are in the module cache are not asked for again, so
# that it needs no network.
tool() {
	GOPROXY="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)" \
		built "$1" "$2" go install -ldflags='-s -w' "$3@$2"
}
