#!/bin/sh
# Tests payguard-sandbox: selftest.sh [PROGRAM]. Builds it first if no program is given.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -eq 0 ]; then
	build=$(mktemp -d)
	trap 'rm -rf "$build"' EXIT
	make -s -C "$here" BUILD="$build"
	set -- "$build/payguard-sandbox"
fi
perl "$here/selftest.pl" "$1"
