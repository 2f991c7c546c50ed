#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Walks from either end, ranges that are deleted, and keys and values in hexadecimal.
set -eu
# shellcheck source=tests/tools/tool_check.sh
. "$(dirname "$0")/tool_check.sh"

# Keys in tables, in the memtable's log, overwritten and deleted.
awk 'BEGIN { for (i = 0; i < 40000; i++) printf "key%05d\tvalue %d\n", i, i }' >many.tsv
expect 0 load --write-buffer-bytes=256K s many.tsv
expect 0 put s key00007 seven
expect 0 delete s key00003

expect 0 scan s
cp out forward
expect 0 scan --reverse s
sed '1!G;h;$!d' out >turned
cmp -s forward turned || problem "scan --reverse is not scan turned round"
expect 0 scan --reverse --limit=2 --keys-only --to=key00005 s
printed 'key00004
key00002'
expect 0 scan --reverse --prefix=key0001 --limit=1 s
printed 'key00019	value 19'
expect 0 scan --reverse --count --from=key39990 s
printed 10

# Hexadecimal on both sides: k is 6b, 1 is 31.
expect 0 scan --hex --from=6b65793030303037 --limit=1 s
printed '6b65793030303037	736576656e'
expect 0 get --hex s 6B65793030303037
printed 736576656e
expect 1 get --hex s 00
expect 0 put --hex s 00ff 0a0d
expect 0 get --hex s 00ff
printed 0a0d
expect 0 get --escaped s '\x00\xff'
printf '\n\r\n' | cmp -s - out || problem "put --hex stored other bytes"
printf 'raw\n' >input
"$TAMIS" put --hex s 00fe - <input || problem "put --hex from standard input"
expect 0 get --hex s 00fe
printed 7261770a
printf '00fe\n00FF\n' >keys
expect 0 get --hex --keys-from=keys s
printed '00fe	7261770a
00ff	0a0d'
expect 0 delete --hex s 00ff 00fe
expect 1 get --hex s 00ff
printf '0\n' >keys
expect 3 get --hex --keys-from=keys s
said 'keys:1: expected pairs of hexadecimal digits at byte 2'
for bytes in 0 0g 'x' ' 00' 00-; do
    expect 2 get --hex s "$bytes"
    said 'hexadecimal'
    expect 2 put --hex new "$bytes" 00
    expect 2 put --hex new 00 "$bytes"
    expect 2 scan --hex --from="$bytes" s
done
expect 2 put --hex new - 00
expect 2 get --hex --escaped s 00
said 'not both'
no_file new

# Ranges go, their neighbours stay.
expect 0 delete --from=key10000 --to=key20000 s
said '^deleted 10000 records$'
expect 0 scan --count s
printed 29999
expect 0 scan --keys-only --from=key09999 --limit=2 s
printed 'key09999
key20000'
expect 0 delete --prefix=key3 --sync s
said '^deleted 10000 records$'
expect 0 delete --hex --prefix=6b657932 s
said '^deleted 10000 records$'
expect 0 scan --count s
printed 9999
expect 0 delete --prefix=key0999 --from=key09995 s
said '^deleted 5 records$'
expect 0 delete --prefix=nothing s
said '^deleted 0 records$'
expect 0 delete --from=z --to=a s
said '^deleted 0 records$'
expect 2 delete s
expect 2 delete --prefix=key s key00001
expect 2 delete --prefix=key
expect 0 scan --count s
printed 9994
expect 0 delete --from= s
said '^deleted 9994 records$'
expect 0 scan --count s
printed 0
expect 0 compact s
expect 0 verify s
grep -q '^sound: 0 tables' out || problem "something is left of a store whose keys were all deleted: $(cat out)"
expect 3 delete --prefix=a nothing
no_file nothing

# The statistics by file: as many lines as tables.
expect 0 load --write-buffer-bytes=256K t many.tsv
expect 0 stats t
cp out text
expect 0 stats --files t
# A line for every table, a head and an empty line.
tables=$(echo t/*.sst | wc -w)
[ "$(wc -l <out)" = $(($(wc -l <text) + tables + 2)) ] || problem "stats --files: $(cat out)"
grep -q 'key00000 \.\. ' out || problem "stats --files shows no ranges: $(cat out)"
expect 0 stats --json t
for name in read_amplification write_amplification space_amplification memory_other_bytes background_error_count \
    unremoved_file_count background_error; do
    grep -q "\"$name\": " out || problem "stats --json has no $name"
done
expect 2 stats --json --files t
tools_done
