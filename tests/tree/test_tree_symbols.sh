#!/bin/sh
# SPDX-License-Identifier: MIT
#
# libtamis.so exports tamis_* only, in the version node TAMIS_0, and everything that the public headers declare; what
# object files share among themselves is called tamis_* or tm_*.
set -eu
# shellcheck source=tests/tree/tree_check.sh
. "$(dirname "$0")/tree_check.sh"
: "${LIBTAMIS:?}"
NM=${NM:-nm}
fresh_scratch

"$NM" -D --defined-only "$LIBTAMIS" | awk '{ print $NF }' >"$SCRATCH_DIR/exported"
others=$(grep -vE '^(tamis_[a-z0-9_]+@@TAMIS_0|TAMIS_0)$' "$SCRATCH_DIR/exported" || :)
[ -z "$others" ] || problem "libtamis.so exports: $others"

# Every function that a public header declares can be linked.
for header in engine/include/tamis/tamis.h sstable/include/tamis/types.h \
    filter/include/tamis/filter.h; do
    awk '/TAMIS_API [a-z]/ { sub(/.*TAMIS_API /, ""); if (match($0, /tamis_[a-z0-9_]+\(/))
        print substr($0, RSTART, RLENGTH - 1) }' "$SOURCE_DIR/$header"
done | sort -u >"$SCRATCH_DIR/declared"
[ "$(wc -l <"$SCRATCH_DIR/declared")" -gt 40 ] || problem "fewer declarations found than there are"
while read -r name; do
    grep -q "^$name@" "$SCRATCH_DIR/exported" || problem "declared and not exported: $name"
done <"$SCRATCH_DIR/declared"
sed 's/@.*//' "$SCRATCH_DIR/exported" | grep '^tamis_' | while read -r name; do
    grep -qx "$name" "$SCRATCH_DIR/declared" || echo "$name"
done >"$SCRATCH_DIR/undeclared"
[ ! -s "$SCRATCH_DIR/undeclared" ] ||
    problem "exported and not declared: $(tr '\n' ' ' <"$SCRATCH_DIR/undeclared")"

for library in filter/libtamis_filter.a sstable/libtamis_sstable.a engine/libtamis_engine.a; do
    others=$("$NM" -g --defined-only "$BUILD_DIR/$library" |
        awk 'NF == 3 && $3 !~ /^(tamis|tm)_/ { print $3 }')
    [ -z "$others" ] || problem "$library shares between files: $others"
done
tree_done
