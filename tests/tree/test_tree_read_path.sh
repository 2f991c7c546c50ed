#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The list "Follow one read" of README.md and the tags READ PATH n/8 in the sources say the same: the stops 1 to 8, each once,
# each in the file that the list names.
set -eu
# shellcheck source=tests/tree/tree_check.sh
. "$(dirname "$0")/tree_check.sh"
fresh_scratch
cd "$SOURCE_DIR"

# "3. `search_memtables` - `engine/read.c` - ..." -> "3 engine/read.c search_memtables"
awk '/^## Follow one read/ { inside = 1; next } /^## / { inside = 0 }
    inside && /^[0-9]+\. / { split($0, part, "`"); sub(/\..*/, "", $1); print $1, part[4], part[2] }' \
    README.md >"$SCRATCH_DIR/list"
grep -rnoE --include='*.[ch]' 'READ PATH [0-9]+/[0-9]+' filter sstable engine |
    awk -F: '{ sub(/READ PATH /, "", $3); print $3, $1 }' | sort -n >"$SCRATCH_DIR/tags"

awk '{ print $1 "/8", $2 }' "$SCRATCH_DIR/list" >"$SCRATCH_DIR/expected"
[ "$(wc -l <"$SCRATCH_DIR/expected")" = 8 ] || problem "the list of README.md has not eight stops"
diff "$SCRATCH_DIR/expected" "$SCRATCH_DIR/tags" || problem "README.md (<) and the sources (>) differ"
while read -r number file function; do
    grep -qE "^$function\\(|^static .*[ *]$function\\(|^tm_.*[ *]$function\\(" "$file" ||
        problem "stop $number: there is no function $function in $file"
done <"$SCRATCH_DIR/list"
tree_done
