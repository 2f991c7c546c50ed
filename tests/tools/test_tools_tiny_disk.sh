#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A store on a real medium of a few KiB, or of a few files: what finds no room says so, what was promised is there and can be
# read, and with more room the store goes on. Needs the right to mount, in a name space of its own; skipped without.
set -eu

if [ -z "${OWN_MOUNTS:-}" ]; then
    if [ "$(id -u)" != 0 ] || ! unshare -m true 2>/dev/null; then
        echo "SKIPPED: this needs the right to mount" >&2
        exit 77
    fi
    OWN_MOUNTS=yes exec unshare -m sh "$0" # whatever happens, mounts end with this process
fi
# shellcheck source=tests/tools/tool_check.sh
. "$(dirname "$0")/tool_check.sh"

mkdir disk
trap 'umount disk 2>/dev/null || :' EXIT
if ! mount -t tmpfs -o size=4k none disk 2>mount.err; then
    echo "SKIPPED: $(cat mount.err)" >&2
    exit 77
fi
umount disk
awk 'BEGIN { for (i = 0; i < 20000; i++) printf "%08d\tvalue %d\n", i, i }' >many.tsv

# try ARGUMENT...: it works, or says that there is no room; the exit code is left in $code.
try()
{
    code=0
    "$TAMIS" "$@" >out 2>err || code=$?
    if [ "$code" != 0 ]; then
        [ "$code" = 3 ] || problem "$medium: tamis $*: exit code $code"
        said "^tamis $1: .*No space left on device"
        refused=$((refused + 1))
    fi
}

# check_promised: what was acknowledged is there: $promised keys of put, and the first $loaded records of load.
check_promised()
{
    i=0
    while [ "$i" -lt "$promised" ]; do
        i=$((i + 1))
        expect 0 get disk/db "key $i"
        printed "value of $i"
    done
    [ "$loaded" = 0 ] || {
        expect 0 scan --limit="$loaded" disk/db
        head -n "$loaded" many.tsv | cmp -s - out ||
            problem "$medium: the first $loaded records of a load that was cut short are not there"
    }
}

refused=0
for medium in size=4k,full size=4k size=8k size=16k size=64k size=400k nr_inodes=1 nr_inodes=2 nr_inodes=3 nr_inodes=4 \
    nr_inodes=5 nr_inodes=6 nr_inodes=7 nr_inodes=8; do
    mount -t tmpfs -o "size=4m,${medium%,full}" none disk
    [ "$medium" = "${medium%,full}" ] || head -c 4096 many.tsv >disk/filling
    promised=0
    loaded=0
    for i in 1 2 3 4 5; do
        try put disk/db "key $i" "value of $i"
        [ "$code" != 0 ] || [ "$promised" != $((i - 1)) ] || promised=$i
    done
    try load disk/db many.tsv
    if [ "$code" = 3 ]; then
        loaded=$(sed -n 's/^tamis load: after \([0-9]*\) records: .*/\1/p' err)
        loaded=${loaded:-0}
    else
        loaded=20000
    fi
    check_promised # still without room
    [ "$promised" = 0 ] || try delete disk/db 'no such key'

    mount -o remount,size=16m,nr_inodes=1000 disk
    check_promised
    for i in 1 2 3 4 5; do
        expect 0 put disk/db "key $i" "value of $i"
    done
    promised=5
    expect 0 load disk/db many.tsv
    loaded=20000
    check_promised
    expect 0 verify disk/db
    expect 0 scan --count disk/db
    printed 20005
    expect 0 compact disk/db
    expect 0 scan --count disk/db
    printed 20005
    rm -f disk/filling
    expect 0 destroy --yes disk/db
    [ -z "$(ls -A disk)" ] || problem "$medium: destroy left $(ls -A disk)"
    umount disk
done
[ "$refused" -ge 30 ] || problem "only $refused commands found no room: were these media small?"
tools_done
