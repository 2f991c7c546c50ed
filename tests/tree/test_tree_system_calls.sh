#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Whatever can fail, wait or differ between two runs sits in few files: sstable/os_posix.c (files), runtime_posix.c (threads,
# clock, random bytes), os_memory.c (pages). All other object files of the three layers need only functions of memory,
# text and mathematics, which are listed here; a name that is not listed is a system call until somebody shows otherwise.
set -eu
# shellcheck source=tests/tree/tree_check.sh
. "$(dirname "$0")/tree_check.sh"
NM=${NM:-nm}

pure='mem(chr|cmp|cpy|move|set)(_chk)?|__mem(cpy|move|set)_chk|str(n?cmp|n?len|r?chr|c?spn|error_r)|(__)?v?snprintf(_chk)?'
pure="$pure|qsort(_r)?|bsearch|__assert_fail|abort|__stack_chk_fail|_GLOBAL_OFFSET_TABLE_|__cpu_(model|indicator_init)"
pure="$pure|exp2?|expm1|log2?|log1p|pow|sqrt|fmax|fmin|floor|ceil|l?l?round|l?l?rint|lgamma|__(u?(div|mod)|mul)ti3"
pure="$pure|__(ctz|clz|popcount)[dt]i2|__(aarch64|atomic)_[a-z0-9_]+|tamis_[a-z0-9_]+|tm_[a-z0-9_]+"

# Further names that one file may use, and why.
allowed_in()
{
    case $1 in
    sstable/codec.c) echo 'LZ4_[a-zA-Z_]+' ;;    # the one home of LZ4
    sstable/fs_posix.c) echo 'pthread_once' ;;   # fills its table of functions once
    *) echo 'none' ;;
    esac
}

seen=0
for layer in filter sstable engine; do
    for object in "$BUILD_DIR/$layer/CMakeFiles/tamis_$layer.dir"/*.o; do
        [ -f "$object" ] || continue
        name=${object##*/}
        source=$layer/${name%.o}
        seen=$((seen + 1))
        case $source in
        sstable/os_posix.c | sstable/runtime_posix.c | sstable/os_memory.c) continue ;;
        esac
        [ -f "$SOURCE_DIR/$source" ] || continue # left over from a file that is gone
        others=$("$NM" -u "$object" | awk '{ sub(/@.*/, "", $2); print $2 }' |
            grep -vxE "$pure|$(allowed_in "$source")" || :)
        [ -z "$others" ] || problem "$source:" "$(echo "$others" | tr '\n' ' ')"
    done
done
[ "$seen" -ge 20 ] || problem "only $seen object files found under $BUILD_DIR"

# The check must see the calls where they are allowed.
"$NM" -u "$BUILD_DIR/sstable/CMakeFiles/tamis_sstable.dir/os_posix.c.o" |
    awk '{ sub(/@.*/, "", $2); print $2 }' | grep -qvxE "$pure" ||
    problem "no system call found in sstable/os_posix.c: is this script looking at the right place?"
tree_done
