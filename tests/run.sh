#!/bin/sh
# SPDX-License-Identifier: MIT
#
# tests/run.sh -- build and test. Without arguments the release build; with --all also the builds with address and
# undefined-behaviour sanitizers, with the thread sanitizer, and without SIMD.
# Not here: what is tested; see tests/README.md.
set -eu

usage()
{
    cat <<'TEXT'
usage: tests/run.sh [--all] [-j JOBS]

Installs what is missing (Debian, as root), builds into build/<name> and runs the tests.

  --all     release, then dev (address and undefined-behaviour sanitizers), tsan (thread
            sanitizer) and scalar (no SIMD)
  -j JOBS   programs at a time; default: the processors there are

Environment: TAMIS_SEED, the seed of random tests.
TEXT
}

presets=release
jobs=$(nproc 2>/dev/null || echo 2)
while [ $# -gt 0 ]; do
    case $1 in
    --all) presets="release dev tsan scalar" ;;
    -j) jobs=${2:?"-j takes a number"} && shift ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
    shift
done

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
# shellcheck source=tools/packages.sh
. "$root/tools/packages.sh"
# shellcheck disable=SC2086 # one word a package
need_packages $TAMIS_BUILD_PACKAGES wamerican-insane

# The thread sanitizer of gcc 12 cannot start under some layouts of the address space; a fixed one helps.
fixed_layout=
if setarch -R true 2>/dev/null; then
    fixed_layout="setarch -R"
fi

tests_all=0
tests_failed=0
broken=0
for preset in $presets; do
    echo "==== $preset ===="
    log=build/$preset/ctest.log
    mkdir -p "build/$preset"
    if ! cmake --preset "$preset" >"build/$preset/configure.log" 2>&1; then
        cat "build/$preset/configure.log"
        broken=1
        continue
    fi
    if ! cmake --build --preset "$preset" -j "$jobs"; then
        broken=1
        continue
    fi
    case $preset in
    tsan) prefix=$fixed_layout ;;
    *) prefix= ;;
    esac
    # A file instead of a pipe into tee: sh has no pipefail.
    # shellcheck disable=SC2086 # the prefix is two words
    $prefix ctest --preset "$preset" -j "$jobs" </dev/null >"$log" 2>&1 || broken=1
    cat "$log"
    counts=$(sed -n 's/^[0-9]*% tests passed, \([0-9]*\) tests* failed out of \([0-9]*\).*/\1 \2/p' "$log")
    if [ -z "$counts" ]; then
        broken=1
        continue
    fi
    tests_failed=$((tests_failed + ${counts% *}))
    tests_all=$((tests_all + ${counts#* }))
done

if [ "$broken" != 0 ] && [ "$tests_failed" = 0 ]; then
    echo "a build failed, or ctest did not finish; see above"
    exit 1
fi
passed=0
[ "$tests_all" = 0 ] || passed=$(((tests_all - tests_failed) * 100 / tests_all))
echo
echo "All builds: $presets"
echo "$passed% tests passed, $tests_failed tests failed out of $tests_all"
[ "$broken" = 0 ] && [ "$tests_all" != 0 ]
