#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Small things that decay unless a program looks: unfinished work by its own words, heads, stray white space, and file
# names, of which no two sources share one.
set -eu
# shellcheck source=tests/tree/tree_check.sh
. "$(dirname "$0")/tree_check.sh"
fresh_scratch
cd "$SOURCE_DIR"

find CMakeLists.txt README.md .ci filter sstable engine tools bench tests -type f \
    \( -name '*.[ch]' -o -name '*.sh' -o -name '*.md' -o -name '*.txt' -o -name '*.in' -o -name run \) \
    >"$SCRATCH_DIR/files"
found=$(xargs grep -nE '\b([T]ODO|[F]IXME|[X]XX|[H]ACK)\b|[n]ot implemented|[#]if 0' <"$SCRATCH_DIR/files" || :)
[ -z "$found" ] || problem "unfinished by its own words:
$found"
found=$(xargs grep -nE '[[:space:]]$' <"$SCRATCH_DIR/files" || :)
[ -z "$found" ] || problem "white space at the end of a line:
$found"
grep -E '\.([ch]|sh)$' "$SCRATCH_DIR/files" >"$SCRATCH_DIR/sources"
while read -r file; do
    head -n 3 "$file" | grep -q 'SPDX-License-Identifier: MIT' || problem "$file: no SPDX line at its head"
done <"$SCRATCH_DIR/sources"
found=$(sed 's|.*/||' "$SCRATCH_DIR/sources" | sort | uniq -d)
[ -z "$found" ] || problem "names that two files have: $found"
tree_done
