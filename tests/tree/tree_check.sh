# SPDX-License-Identifier: MIT
#
# tests/tree/tree_check.sh -- what the scripts of this folder share; sourced.
# shellcheck shell=sh

: "${SOURCE_DIR:?set by CTest}" "${BUILD_DIR:?}" "${SCRATCH_DIR:?}"
problems=0

# problem TEXT...: say it and remember.
problem()
{
    echo "$*"
    problems=$((problems + 1))
}

# tree_done: exit with what was found.
tree_done()
{
    [ "$problems" = 0 ] || echo "$problems problem(s)"
    [ "$problems" = 0 ]
    exit
}

fresh_scratch()
{
    rm -rf "$SCRATCH_DIR"
    mkdir -p "$SCRATCH_DIR"
}
