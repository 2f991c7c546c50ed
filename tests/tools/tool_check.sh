# SPDX-License-Identifier: MIT
#
# tests/tools/tool_check.sh -- what the scripts of this folder share; sourced. Each works in a fresh folder of its own.
# shellcheck shell=sh

: "${TAMIS:?the tamis command; set by CTest}" "${SCRATCH_DIR:?}"
problems=0
rm -rf "$SCRATCH_DIR"
mkdir -p "$SCRATCH_DIR"
cd "$SCRATCH_DIR" || exit 1
LC_ALL=C
export LC_ALL

# problem TEXT...: say it and remember.
problem()
{
    echo "$*"
    problems=$((problems + 1))
}

# expect CODE ARGUMENT...: run tamis; the exit code must be CODE. Output is left in ./out and ./err.
expect()
{
    wanted=$1
    shift
    code=0
    "$TAMIS" "$@" >out 2>err || code=$?
    if [ "$code" != "$wanted" ]; then
        problem "tamis $*: exit code $code, expected $wanted; stderr: $(cat err)"
    fi
    # Whatever went wrong is said, and what went well says nothing that scripts would take for an error.
    case $code in
    2 | 3) [ -s err ] || problem "tamis $*: exit code $code without a word" ;;
    esac
}

# printed TEXT: the last expect printed exactly this and a newline.
printed()
{
    [ "$(cat out)" = "$1" ] || problem "printed '$(cat out)', expected '$1'"
}

# said PATTERN: the last expect said something like this on standard error.
said()
{
    grep -qE -- "$1" err || problem "standard error has nothing like '$1': $(cat err)"
}

# no_file PATH...
no_file()
{
    for path in "$@"; do
        [ ! -e "$path" ] || problem "$path was left behind"
    done
}

tools_done()
{
    [ "$problems" = 0 ] || echo "$problems problem(s)"
    [ "$problems" = 0 ]
    exit
}
