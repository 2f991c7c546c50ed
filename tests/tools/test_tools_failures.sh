#!/bin/sh
# SPDX-License-Identifier: MIT
#
# No store, no directory, no file, damage, a second opener, an output that is gone: exit code 3, a message that names it, and
# nothing left behind.
set -eu
# shellcheck source=tests/tools/tool_check.sh
. "$(dirname "$0")/tool_check.sh"

printf 'k\tv\n' >one.tsv
: >file
mkdir empty
for store in nothing file empty nothing/below; do
    for command in 'get %s k' 'delete %s k' 'scan %s' 'dump %s' 'dump %s out.tsv' 'stats %s' 'verify %s' \
        'compact %s' 'checkpoint %s copy' 'destroy --yes %s'; do
        # shellcheck disable=SC2046,SC2059 # words are wanted, and the pattern is ours
        expect 3 $(printf "$command" "$store")
        said "$store"
    done
done
no_file nothing out.tsv copy
[ -z "$(ls -A empty)" ] || problem "a command left $(ls -A empty) in a directory that is no store"
[ ! -s file ] || problem "a command wrote into a file that is no store"
expect 3 put file k v
expect 3 put nothing/below k v
expect 3 load s nothing.tsv
no_file s nothing
expect 3 load s empty
expect 3 inspect nothing
expect 3 inspect file
expect 3 inspect empty

# Bad lines: the message names file, line and what was expected, and what precedes them is there.
printf 'a\t1\nb\t2\nno tab\nc\t3\n' >bad.tsv
expect 3 load bad bad.tsv
said '^tamis load: bad\.tsv:3: expected key, tab, value; found no tab; the 2 records before this line are loaded$'
expect 0 scan bad
printed "a	1
b	2"
printf 'a\t1\nb\t2\t3\n' >bad.tsv
expect 3 load bad2 bad.tsv
said 'bad\.tsv:2: expected one tab; found a second one at byte 4'
printf 'a\\q\t1\n' >bad.tsv
expect 3 load bad2 bad.tsv
said 'bad\.tsv:1: expected .* at byte 2'
printf 'key\tval\\x4\n' >bad.tsv
expect 3 load bad2 bad.tsv
said 'bad\.tsv:1: expected .* at byte 8'
printf 'a\t1\n\nb\t2\n' >bad.tsv
expect 3 load bad2 bad.tsv
said 'bad\.tsv:2:'
printf '\134' >bad.tsv
expect 3 load bad2 bad.tsv
printf 'a\t\134' >bad.tsv
expect 3 load bad2 bad.tsv

# Output that cannot be written is a failure, not silence.
expect 0 load s one.tsv
for command in 'scan s' 'dump s' 'get s k' 'stats s' 'help' 'version' 'get --trace s k'; do
    code=0
    # shellcheck disable=SC2086 # words are wanted
    "$TAMIS" $command >&- 2>err || code=$?
    [ "$code" = 3 ] || problem "$command with standard output closed: exit code $code"
    said 'standard output'
    if [ -w /dev/full ]; then
        code=0
        # shellcheck disable=SC2086
        "$TAMIS" $command >/dev/full 2>err || code=$?
        [ "$code" = 3 ] || problem "$command on a full device: exit code $code"
    fi
done
code=0
"$TAMIS" put s k2 v2 >&- 2>&- <&- || code=$?
[ "$code" = 0 ] || problem "put with all streams closed: exit code $code"
expect 0 verify s
expect 0 get s k2
printed v2
if [ -w /dev/full ]; then
    expect 3 dump s /dev/full
fi
awk 'BEGIN { for (i = 0; i < 20000; i++) printf "%08d\tvalue %d\n", i, i }' >many.tsv
expect 0 load many many.tsv
{ "$TAMIS" scan many 2>err || echo $? >code; } | head -n 1 >out
[ "$(cat code)" = 3 ] || problem "a reader that went away: exit code $(cat code)"
said 'standard output'

# A second writer is told so; who only reads is served. The first one waits for its input; a fifo keeps it open.
mkfifo feed
"$TAMIS" load held feed 2>held.err &
holder=$!
exec 9<>feed # both ways: does not wait for the reader
# The store is there as soon as its files are; the lock is taken before.
while [ ! -e held/CURRENT ] && kill -0 "$holder"; do :; done
cat many.tsv many.tsv >&9 # more than a batch, so that when all is taken a batch is in the store
for command in 'put held a 2' 'delete held a' 'compact held' 'checkpoint held copy' 'load held one.tsv' \
    'destroy --yes held'; do
    # shellcheck disable=SC2086
    expect 3 $command
    said ': held is open elsewhere$'
done
no_file copy
expect 0 get held 00000007
printed 'value 7'
expect 0 scan --to=00000002 held
printed '00000000	value 0
00000001	value 1'
for command in 'dump held' 'get --trace held 00000007' 'stats held' 'stats --json held' 'verify held'; do
    # shellcheck disable=SC2086
    expect 0 $command
done
expect 1 get held a
printf 'a\t1\n' >&9
kill -0 "$holder" || problem "the first opener has gone: $(cat held.err)"
exec 9>&-
wait "$holder" || problem "the first opener failed: $(cat held.err)"
expect 0 get held a
printed 1

# So is who may not write: another user, a medium that is read-only.
if [ "$(id -u)" = 0 ] && setpriv --reuid=65534 --clear-groups test -x "$TAMIS" -a -r held/CURRENT 2>err; then
    as_nobody()
    {
        code=0
        setpriv --reuid=65534 --clear-groups "$TAMIS" "$@" >out 2>err || code=$?
    }
    for command in 'get held a' 'scan held' 'dump held' 'stats held' 'verify held'; do
        # shellcheck disable=SC2086
        as_nobody $command
        [ "$code" = 0 ] || problem "$command without the right to write: exit code $code: $(cat err)"
    done
    for command in 'put held b 2' 'delete held a' 'compact held' 'checkpoint held copy' 'destroy --yes held'; do
        # shellcheck disable=SC2086
        as_nobody $command
        [ "$code" = 3 ] || problem "$command without the right to write: exit code $code"
        said 'held.*Permission denied'
    done
fi

# Who reads changes nothing and is in no writer's way; it shows the store as it was. A fifo that nobody empties keeps it open.
cp -R many walked
expect 0 put walked a 1 # in the log
find walked -printf '%p %s %T@\n' | sort >before
cksum walked/* >>before
for command in 'get walked a' 'scan --count walked' 'dump walked out.tsv' 'get --keys-from=out.tsv --count walked'; do
    code=0
    # shellcheck disable=SC2086
    "$TAMIS" $command >out 2>err || code=$?
    [ "$code" -le 1 ] || problem "$command: exit code $code: $(cat err)"
    find walked -printf '%p %s %T@\n' | sort >after
    cksum walked/* >>after
    cmp -s before after || problem "$command changed the store: $(diff before after)"
done
mkfifo drain
"$TAMIS" dump walked >drain 2>dump.err &
reader=$!
exec 8<drain
IFS= read -r first <&8
[ "$first" = '00000000	value 0' ] || problem "dump began with '$first'"
expect 0 put walked b 2
expect 0 delete walked 00019999
expect 0 compact walked
expect 1 get walked 00019999
expect 3 destroy --yes walked
said ': walked is open elsewhere$'
cat <&8 >rest
exec 8<&-
wait "$reader" || problem "dump: $(cat dump.err)"
[ "$(wc -l <rest)" = 20000 ] || problem "dump wrote $(wc -l <rest) lines after the first one"
[ "$(tail -n 2 rest)" = '00019999	value 19999
a	1' ] || problem "dump ended with '$(tail -n 2 rest)'"

# A dump must not take the place of a file of the store that it reads.
ln -s held/CURRENT innocent
for file in held/CURRENT held/LOCK held/MANIFEST-000001 ./held/../held/000001.sst "$(pwd)/held/000001.wal" innocent; do
    expect 2 dump held "$file"
    said "$file is a file of the store itself"
done
(cd held && "$TAMIS" dump . CURRENT 2>../err) && problem "a dump took the place of CURRENT"
expect 0 dump held CURRENT
expect 0 verify held

# Standard streams have a name in messages.
expect 3 load s - <empty
said '^tamis load: standard input: '
expect 3 get --keys-from=- s <empty
said '^tamis get: standard input: '
{ "$TAMIS" dump many 2>err || echo $? >code; } | head -n 1 >out
said '^tamis dump: standard output was cut short'

# Damage is named and is exit code 3; what is not damaged can still be read.
table=$(echo many/*.sst | cut -d' ' -f1)
size=$(wc -c <"$table")
printf 'damage!!' | dd of="$table" bs=1 seek=$((size / 4)) conv=notrunc 2>dd.log
expect 3 verify many
said "$(basename "$table")"
expect 3 scan many

# A damaged filter costs time, not answers: a warning, and verify fails.
expect 0 load filtered many.tsv
table=$(echo filtered/*.sst | cut -d' ' -f1)
"$TAMIS" inspect "$table" >out || problem "inspect of a table: exit code $?"
offset=$(sed -n 's/^section filter \([0-9]*\) .*/\1/p' out)
printf 'x' | dd of="$table" bs=1 seek=$((offset + 1000)) conv=notrunc 2>dd.log
expect 0 get filtered 00000007
printed 'value 7'
said "^tamis get: warning: $(basename "$table"): filter: "
expect 3 verify filtered
said "$(basename "$table"): filter at"
expect 0 stats filtered
grep -q '^1 filters are damaged' out || problem "stats says nothing of a damaged filter"
expect 0 put filtered 00000007 seven
expect 0 compact filtered
expect 0 verify filtered
[ ! -s err ] || problem "a new filter is still complained about: $(cat err)"

# Every command on a store of which one file is damaged or gone: exit code 3 and the file's name, or the right answer.
expect 0 put filtered last value
for file in CURRENT "$(basename filtered/MANIFEST-*)" "$(basename filtered/*.wal)"; do
    for command in 'get %s last' 'scan %s' 'dump %s' 'dump --format=csv %s' 'stats %s' 'verify %s' 'compact %s' 'put %s a b' \
        'delete %s a' 'delete --prefix=0 %s' 'load %s one.tsv'; do
        rm -rf copy
        cp -R filtered copy
        printf '\377' | dd of="copy/$file" bs=1 seek=8 conv=notrunc 2>dd.log
        # shellcheck disable=SC2046,SC2059 # words are wanted, and the pattern is ours
        expect 3 $(printf "$command" copy)
        said "$file"
        ! grep -q 'copy: copy: ' err || problem "the path is said twice: $(cat err)"
        rm -f "copy/$file"
        # shellcheck disable=SC2046,SC2059
        expect 3 $(printf "$command" copy)
        said "${file%-*}"
        ! grep -q 'copy: copy: ' err || problem "the path is said twice: $(cat err)"
    done
done
tools_done
