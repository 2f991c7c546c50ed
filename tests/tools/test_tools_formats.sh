#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What is dumped as TSV, CSV or JSON lines, plain or hexadecimal, is loaded as the same bytes; other programs read it as the same;
# and a record that is none is named with its line.
set -eu
# shellcheck source=tests/tools/tool_check.sh
. "$(dirname "$0")/tool_check.sh"

# Without Jansson at build time load reads no JSON lines: it says so, and is not asked below.
reads_json()
{
    [ "${HAS_JANSSON:-1}" = 1 ]
}
if ! reads_json; then
    printf '{"key": "a", "value": "b"}\n' >a.jsonl
    expect 2 load --format=jsonl s a.jsonl
    said '^tamis load: --format=jsonl: this build reads no JSON, since Jansson was missing; tsv or csv$'
    no_file s
fi

# Every byte alone, every triple around the borders of UTF-8 and of the formats, and the empty key.
awk 'BEGIN {
    printf "\tvalue of the empty key\n"
    for (i = 0; i < 256; i++) printf "one\\x%02x\tv\\x%02x\\x%02x\n", i, i, 255 - i
    n = split("0 9 10 13 31 32 34 44 92 127 128 159 160 191 194 195 224 237 244 255", b, " ")
    for (i = 1; i <= n; i++) for (j = 1; j <= n; j++) for (k = 1; k <= n; k++)
        printf "\\x%02x\\x%02x\\x%02x\t\\x%02x\\x%02x\n", b[i], b[j], b[k], b[k], b[i]
}' >all.tsv
expect 0 load s all.tsv
expect 0 dump s plain.tsv
[ "$(wc -l <plain.tsv)" = "$(wc -l <all.tsv)" ] || problem "records were lost or joined"

# again FORMAT [OPTION]: dump, load into a new store, dump as TSV: the same.
again()
{
    expect 0 dump --format="$1" ${2:+"$2"} s "file.$1"
    [ "$(tail -c 1 "file.$1")" = "" ] || problem "$*: the last line has no end"
    [ "$1" != jsonl ] || reads_json || return 0
    [ "$1:${2:-}" != jsonl:--hex ] || set -- jsonl
    rm -rf t
    expect 0 load --format="$1" ${2:+"$2"} t "file.$1"
    expect 0 dump t back.tsv
    cmp -s plain.tsv back.tsv || problem "$*: other bytes came back"
}
again tsv
again tsv --hex
tr -d '0-9a-f\t\n' <file.tsv | cmp -s - /dev/null || problem "dump --hex writes other than digits"
again csv
again csv --hex
tr -d '0-9a-f,\n' <file.csv | cmp -s - /dev/null || problem "dump --format=csv --hex writes other than digits"
again jsonl
tr -d '\n' <file.jsonl | grep -q '[[:cntrl:]]' && problem "dump --format=jsonl writes control bytes"
again jsonl --hex
grep -qv '^{"key_hex": "[0-9a-f]*", "value_hex": "[0-9a-f]*"}$' file.jsonl && problem "dump --format=jsonl --hex: a line of another form"

# The forms, byte for byte.
expect 0 put f 'a,b' 'say "hi"'
expect 0 put f 'größe' 'x'
expect 0 put --escaped f 'line\nend' 'cr\x0d'
expect 0 put --hex f ff00 C3bc
expect 0 dump --format=csv f
printf '"a,b","say ""hi"""\ngr\303\266\303\237e,x\n"line\nend","cr\r"\n\377\000,\303\274\n' | LC_ALL=C sort >expected
LC_ALL=C sort out | cmp -s - expected || problem "csv: $(cat out)"
expect 0 dump --format=jsonl f
printf '%s\n' '{"key": "a,b", "value": "say \"hi\""}' '{"key": "größe", "value": "x"}' \
    '{"key": "line\u000aend", "value": "cr\u000d"}' '{"key_hex": "ff00", "value": "ü"}' | LC_ALL=C sort >expected
LC_ALL=C sort out | diff - expected || problem "jsonl: printed (<) other than expected (>)"
if command -v python3 >/dev/null; then
    "$TAMIS" dump --format=csv --hex s >hex.csv
    "$TAMIS" dump --format=csv s >plain.csv
    "$TAMIS" dump --format=jsonl s >plain.jsonl
    python3 - <<'END' || problem "Python reads the files otherwise"
import csv, json
key_hex = [tuple(bytes.fromhex(field) for field in line.rstrip("\n").split(",")) for line in open("hex.csv")]
# The csv module refuses NUL bytes in some versions: it is given a character that stands for one.
text = open("plain.csv", "rb").read().decode("latin-1").replace("\0", "\u0100")
rows = csv.reader(__import__("io").StringIO(text, newline=""), strict=True)
assert [tuple(f.replace("\u0100", "\0").encode("latin-1") for f in row) for row in rows] == key_hex
def member(o, name):
    return o[name].encode() if name in o else bytes.fromhex(o[name + "_hex"])
with open("plain.jsonl", encoding="utf-8", newline="\n") as lines:
    assert [(member(o, "key"), member(o, "value")) for o in map(json.loads, lines)] == key_hex
END
fi

# What other programs write is read: carriage returns, quotes where none are needed, no last newline, any order of members.
printf '"a","1"\r\nb,"2"\r\n"c",3' >foreign.csv
expect 0 load --format=csv g foreign.csv
printf '{"value":"4","key":"\\u0064"}\n  { "key_hex" : "65" , "value_hex" : "35" }\r\n{"key":"f\\u0000","value":"\\ud83d\\ude00"}' >foreign.jsonl
expect 0 dump g
printed 'a	1
b	2
c	3'
if reads_json; then
    expect 0 load --format=jsonl g foreign.jsonl
    expect 0 dump g
    printed 'a	1
b	2
c	3
d	4
e	5
f\x00	😀'
fi

# refused FORMAT LINES PATTERN [OPTION]: a good record, then these lines: bad at line 2, and one record is loaded.
refused()
{
    rm -rf bad
    case $1 in
    tsv) first='61\t62\n' ;;
    csv) first='61,62\n' ;;
    jsonl) first='{"key": "a", "value": "b"}\n' ;;
    esac
    # shellcheck disable=SC2059 # patterns of ours
    printf "$first$2" >bad.file
    expect 3 load --format="$1" ${4:+"$4"} bad bad.file
    said "^tamis load: bad\.file:2: .*$3.*; the 1 records before this line are loaded\$"
    expect 0 scan --count bad
    printed 1
}
refused csv 'a\n' 'found the end at byte 2'
refused csv '\n' 'expected two fields'
refused csv 'a,b,c\n' 'found a third one at byte 4'
refused csv 'a"b,c\n"' 'a quote inside a field at byte 2'
refused csv '"a"b,c\n' 'more behind a quote at byte 4'
refused csv '"a,b\nc,d\n' 'a quote is open to the end'
refused csv '6,62\n' 'hexadecimal digits at byte 2' --hex
refused csv '61,6x\n' 'hexadecimal digits at byte 5' --hex
refused tsv '61\t6g\n' 'hexadecimal digits at byte 5' --hex
refused tsv '611\t62\n' 'hexadecimal digits at byte 4' --hex
for line in '' '[]' 'nonsense' '{"key": "a"}' '{"key": "a", "value": 1}' '{"key": "a", "value": "b", "more": "c"}' \
    '{"key": "a", "key_hex": "61"}' '{"key": "a", "key": "b"}' '{"key": "a", "value": "b"} x' '{"key": "a", "value": "\\ud800"}' \
    '{"key": "a", "value": "\377"}' '{"key_hex": "6", "value": "b"}'; do
    ! reads_json || refused jsonl "$line\\n" 'expected '
done
expect 2 load --format=xml s all.tsv
said 'tsv, csv or jsonl'
expect 2 load --format=jsonl --hex new foreign.jsonl
no_file new
expect 2 scan --hex --escaped s
expect 2 scan --format=csv s

# A field of many lines and megabytes.
awk 'BEGIN { printf "big,\""; for (i = 0; i < 100000; i++) printf "line %d \"\"quoted\"\"\n", i; printf "\"\n" }' >big.csv
expect 0 load --format=csv big big.csv
expect 0 dump --format=csv big
cmp -s out big.csv || problem "a field of many lines came back changed"
printf 'after\n' >>big.csv
expect 3 load --format=csv big big.csv
said 'big\.csv:100002: '
tools_done
