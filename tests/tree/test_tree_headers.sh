#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Each public header compiles alone, as C11 and as C++17, without a warning.
set -eu
# shellcheck source=tests/tree/tree_check.sh
. "$(dirname "$0")/tree_check.sh"
CC=${CC:-cc}
fresh_scratch

for header in tamis/tamis.h tamis/types.h tamis/filter.h; do
    printf '#include <%s>\n#include <%s>\nint main(void);\nint main(void) { return 0; }\n' \
        "$header" "$header" >"$SCRATCH_DIR/alone.c"
    cp "$SCRATCH_DIR/alone.c" "$SCRATCH_DIR/alone.cpp"
    set -- -Wall -Wextra -Wpedantic -Wshadow -Werror -fsyntax-only -I"$SOURCE_DIR/engine/include" \
        -I"$SOURCE_DIR/sstable/include" -I"$SOURCE_DIR/filter/include"
    "$CC" -std=c11 "$@" "$SCRATCH_DIR/alone.c" || problem "$header as C11"
    if command -v g++ >/dev/null 2>&1; then
        sed -i '/^int main(void);$/d' "$SCRATCH_DIR/alone.cpp"
        g++ -std=c++17 "$@" "$SCRATCH_DIR/alone.cpp" || problem "$header as C++17"
    else
        problem "there is no g++ to try $header as C++17"
    fi
done
tree_done
