#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Every command does what its help says, with the exit codes that are promised.
set -eu
# shellcheck source=tests/tools/tool_check.sh
. "$(dirname "$0")/tool_check.sh"

expect 0 put s apple red
printed ""
expect 0 get s apple
printed red
expect 1 get s pear
printed ""
[ ! -s err ] || problem "a key that is not there is no error message: $(cat err)"
expect 0 put s apple green
expect 0 get s apple
printed green
expect 0 put --sync s cherry dark
expect 0 put --block-bytes=1K --cache-bytes=0 --write-buffer-bytes=64K --compression=none \
    --filter-kind=standard --bits-per-key=12.5 s banana yellow
expect 0 put --false-positive-rate=0.01 --filter-kind=blk512 s date brown

expect 0 scan s
printed "apple	green
banana	yellow
cherry	dark
date	brown"
expect 0 scan --keys-only --from=banana --to=date s
printed "banana
cherry"
expect 0 scan --count s
printed 4
expect 0 scan --count --prefix=c s
printed 1
expect 0 scan --limit=2 --keys-only s
printed "apple
banana"
expect 0 scan --limit=0 s
printed ""
expect 0 scan --prefix=b --from=c s
printed ""
expect 0 scan --count --limit 3 s
printed 3

expect 0 delete s apple banana nothing
expect 1 get s apple
expect 1 get s banana
expect 0 scan --count s
printed 2

printf 'from standard input\n' >value
"$TAMIS" put s long - <value || problem "put from standard input"
"$TAMIS" get s long >out
printf 'from standard input\n\n' | cmp -s - out || problem "put -: other bytes came back"

expect 0 checkpoint s 'a copy'
expect 0 put s later 1
expect 0 scan --count 'a copy'
printed 3
expect 1 get 'a copy' later
expect 0 delete s later
expect 3 checkpoint s 'a copy'
said 'a copy'

expect 0 compact s
expect 0 verify s
grep -q '^sound: [1-9]' out || problem "verify: $(cat out)"
expect 0 scan --count s
printed 3

expect 0 stats s
grep -q '^level ' out || problem "stats prints no levels"
grep -q 'filters' out || problem "stats prints no memory"
expect 0 stats --json s
grep -q '"total_entry_count": 3,$' out || problem "stats --json: $(cat out)"
[ "$(head -n 1 out)$(tail -n 1 out)" = "{}" ] || problem "stats --json is no object"

printf 'date\nlong\nnothing\n' >keys
expect 1 get s --keys-from=keys
printed "date	brown
long	from standard input\\n"
expect 1 get --count --keys-from=keys s
grep -q '^found  *2$' out || problem "get --count: $(cat out)"
expect 1 get --json --keys-from=keys s
grep -q '"found": 2,$' out || problem "get --json: $(cat out)"
printf 'date\n' >keys
expect 0 get --keys-from=keys --keys-only s
printed "date"
expect 0 get --trace s date
grep -q 'answer: found, 5 bytes' out || problem "get --trace: $(cat out)"
expect 1 get --trace s zebra
grep -q 'answer: not found' out || problem "get --trace: $(cat out)"

expect 0 dump s
cp out copy-out.tsv
expect 0 dump s copy.tsv
cmp -s copy-out.tsv copy.tsv || problem "dump to a file and to standard output differ"
expect 0 load t copy.tsv
said '^loaded 3 records'
expect 0 dump t -
cmp -s out copy.tsv || problem "load and dump: other bytes came back"

for file in t/*.sst t/MANIFEST-* t/CURRENT; do
    expect 0 inspect "$file"
    [ -s out ] || problem "inspect $file printed nothing"
done
expect 0 inspect --entries "$(echo t/*.sst | cut -d' ' -f1)"
grep -q cherry out || problem "inspect --entries shows no entry"

: >t/foreign
expect 2 destroy t
said '--yes'
expect 0 scan --count t
expect 0 destroy --yes t
[ "$(ls -A t)" = foreign ] || problem "destroy left $(ls -A t)"
expect 3 destroy --yes t
expect 0 destroy --yes s
no_file s

expect 0 version
grep -qE '^tamis [0-9]+\.[0-9]+\.[0-9]+ ' out || problem "version: $(cat out)"
expect 0 --version
expect 0 help
expect 0 --help
expect 2
expect 2 frobnicate
for command in put get delete scan load dump stats inspect verify compact checkpoint destroy; do
    expect 0 "$command" --help
    grep -q "^usage: tamis $command " out || problem "$command --help: $(cat out)"
    for part in options: 'exit codes:' examples:; do
        grep -q "^$part\$" out || problem "$command --help has no '$part'"
    done
    grep -q "^  tamis $command " out || problem "$command --help has no example of itself"
    if [ "$command" = get ]; then
        grep -q '^  1  ' out || problem "get --help does not say what 1 means"
    else
        ! grep -q '^  1  ' out || problem "$command --help has an exit code that it does not give"
    fi
    cp out by_option
    expect 0 help "$command"
    cmp -s out by_option || problem "help $command differs from $command --help"
    grep -q "^  $command " by_option || "$TAMIS" help | grep -q "^  $command " ||
        problem "$command is missing in help"
done
expect 2 help frobnicate
tools_done
