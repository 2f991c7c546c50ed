#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Any byte is allowed in keys, values and paths. scan and dump never write a control byte; load reads back exactly what dump
# wrote; UTF-8 passes as it is.
set -eu
# shellcheck source=tests/tools/tool_check.sh
. "$(dirname "$0")/tool_check.sh"

tab=$(printf '\t')
newline='
'
expect 0 put s '' 'value of the empty key'
expect 0 put s 'empty value' ''
expect 0 put s "tab${tab}key" "tab${tab}value"
expect 0 put s "line${newline}key" "line${newline}value"
expect 0 put s 'back\slash' 'back\nslash'
expect 0 put s 'Größe' 'naïve – 日本語 😀'
expect 0 put s "$(printf 'latin1 \351')" "$(printf 'bad utf8 \303(\355\240\200\360\202\202\254\365')"
expect 0 put s "$(printf 'control \033[31m\r\177')" "$(printf 'c1 \302\233 red')"
expect 0 put -- s -dash --value
expect 0 put s ' ' '  '
expect 0 put --escaped s 'nul\x00key' 'nul\x00\x01value'

expect 0 get s ''
printed 'value of the empty key'
expect 0 get s 'empty value'
printed ''
expect 0 get s "tab${tab}key"
printed "tab${tab}value"
expect 0 get s "line${newline}key"
printed "line${newline}value"
expect 0 get s 'back\slash'
printed 'back\nslash'
expect 0 get --escaped s 'back\\slash'
printed 'back\nslash'
expect 0 get -- s -dash
printed '--value'
expect 2 get s -dash
said '--'
expect 0 get --escaped s 'nul\x00key'
printf 'nul\000\001value\n' | cmp -s - out || problem "a value with NUL came back changed"
expect 1 get s nul

expect 0 scan s
printf '%s\n' '	value of the empty key' ' 	  ' '-dash	--value' 'Größe	naïve – 日本語 😀' 'back\\slash	back\\nslash' \
    'control \x1b[31m\x0d\x7f	c1 \xc2\x9b red' 'empty value	' \
    'latin1 \xe9	bad utf8 \xc3(\xed\xa0\x80\xf0\x82\x82\xac\xf5' 'line\nkey	line\nvalue' \
    'nul\x00key	nul\x00\x01value' 'tab\tkey	tab\tvalue' | LC_ALL=C sort >expected
LC_ALL=C sort out >sorted
diff expected sorted || problem "scan printed (>) other than expected (<)"
for command in 'scan s' 'stats s' 'get --trace s x'; do
    # shellcheck disable=SC2086 # words are wanted
    "$TAMIS" $command >out 2>&1 || :
    tr -d '\n\t' <out | grep -q '[[:cntrl:]]' && problem "$command writes control bytes"
done
for file in s/*.sst s/MANIFEST-* s/CURRENT; do
    expect 0 inspect --entries "$file"
    if tr -d '\n\t' <out | grep -q '[[:cntrl:]]'; then
        problem "inspect $file writes control bytes"
    fi
done

# Every byte alone and every pair around the borders of UTF-8, as keys and as values.
awk 'BEGIN {
    for (i = 0; i < 256; i++) printf "one\\x%02x\tv\\x%02X\\x%02x\n", i, i, 255 - i
    split("0 9 10 31 32 92 126 127 128 159 160 191 192 193 194 223 224 237 239 240 244 245 255", b, " ")
    for (i = 1; i in b; i++) for (j = 1; j in b; j++) for (k = 1; k in b; k++)
        printf "\\x%02x\\x%02x\\x%02x\tv\n", b[i], b[j], b[k]
}' >weird.tsv
expect 0 load w weird.tsv
expect 0 dump w first.tsv
expect 0 load w2 first.tsv
expect 0 dump w2 second.tsv
cmp first.tsv second.tsv || problem "dump, load, dump: not the same bytes"
[ "$(sort -u weird.tsv | wc -l)" = "$(wc -l <first.tsv)" ] || problem "records were lost or joined"
tr -d '\n\t' <first.tsv | grep -q '[[:cntrl:]]' && problem "dump writes control bytes"
expect 0 scan --count w
printed "$(wc -l <weird.tsv)"
# Raw bytes are read as they are, and the last line may lack its newline.
printf 'raw \001\351\t\r' >raw.tsv
expect 0 load r raw.tsv
expect 0 dump r
printed 'raw \x01\xe9	\x0d'
cut -f 1 first.tsv >keys
expect 0 get --count --keys-from=keys w
grep -q "^found *$(wc -l <first.tsv)\$" out || problem "keys of a dump are not all found: $(cat out)"

# Large values, past every buffer of the tool.
head -c 3000000 /dev/zero | tr '\0' x >large
"$TAMIS" put l big - <large || problem "put of a large value"
"$TAMIS" get l big | head -c 3000000 | cmp -s - large || problem "a large value came back changed"
expect 0 dump l l.tsv
expect 0 load l2 l.tsv
"$TAMIS" get l2 big | head -c 3000000 | cmp -s - large || problem "a large value came back changed after a load"
head -c 1048577 /dev/zero | tr '\0' k >large-key
printf '\tv\n' >>large-key
expect 3 load l3 large-key
said 'large-key:1:'
no_file l3/000000.sst

# Paths.
for store in 'with space' 'größe' "new${newline}line" "-dash" "quote'\"" 'a	tab'; do
    expect 0 put -- "$store" k "v of $store"
    expect 0 get -- "$store" k
    printed "v of $store"
    expect 0 dump -- "$store" "$store/out.tsv"
    expect 0 load -- "$store.copy" "$store/out.tsv"
    expect 0 get -- "$store.copy" k
    printed "v of $store"
    expect 0 destroy --yes -- "$store"
    [ "$(ls -A -- "./$store")" = out.tsv ] || problem "destroy of '$store' left $(ls -A -- "./$store")"
done
expect 3 get "no${newline}store" k
[ "$(wc -l <err)" = 1 ] || problem "a message of two lines: $(cat err)"
expect 0 put s/ slash "a path with a slash at its end"
expect 0 get ./s slash
tools_done
