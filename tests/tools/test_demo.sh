#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The demo runs to its end on real data, and its figures hang together: the absent words are absent, the measured rate is near
# theory, and more bits read fewer tables.
set -eu
# shellcheck source=tests/tools/tool_check.sh
. "$(dirname "$0")/tool_check.sh"
: "${SOURCE_DIR:?}"

code=0
TAMIS=$TAMIS sh "$SOURCE_DIR/tools/demo.sh" --short >demo.txt 2>&1 </dev/null || code=$?
[ "$code" != 77 ] || exit 77
[ "$code" = 0 ] || problem "exit code $code: $(tail -n 5 demo.txt)"
grep -q '^  answer: found' demo.txt || problem "the key that is there was not found"
grep -q '^  answer: not found' demo.txt || problem "the word that is no package was found"
grep -q '^found *0$' demo.txt || problem "one of the absent words was found"
awk '/^ *bits per key/ { inside = 1 }
    inside && $1 ~ /^[0-9]+$/ {
        rows++
        measured = $5 + 0
        theory = $6 + 0
        if ($1 == 0 && measured != 100) print "without a filter every table is read: " $0
        if (rows > 1 && $8 + 0 >= before) print "more bits, and not fewer tables read: " $0
        if ($1 != 0 && (measured > theory * 1.5 || measured < theory * 0.6)) print "far from theory: " $0
        before = $8 + 0
    }
    END { if (rows < 3) print "the table has " rows + 0 " rows" }' demo.txt >wrong
[ ! -s wrong ] || problem "$(cat wrong)"
tools_done
