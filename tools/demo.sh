#!/bin/sh
# SPDX-License-Identifier: MIT
#
# tools/demo.sh -- tamis on real data, explained as it goes: Debian's package index as the store, English words as keys
# that are not there. Installs what is missing (Debian, as root), builds, runs for about a minute.
# Not here: any figure; all of them come out of the program as it runs.
set -eu

usage()
{
    cat <<'TEXT'
usage: tools/demo.sh [--short]

  --short   fewer records, fewer words, three sizes of filter instead of six

Environment: TAMIS, a tamis command that is built already: nothing is installed or built then.
TEXT
}

short=0
while [ $# -gt 0 ]; do
    case $1 in
    --short) short=1 ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
    shift
done
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
words=/usr/share/dict/american-english-insane
LC_ALL=C
export LC_ALL

say()
{
    printf '\n%s\n' "$*" | fold -s -w 96 | sed 's/ $//'
}

# One record after the other in portions smaller than the write buffer: each load ends when its table is written and
# background work is quiet, so the tree is the same in every run and for every size of filter.
load_in_portions() # DB BITS
{
    for portion in "$work"/portions/*; do
        if ! "$TAMIS" load --write-buffer-bytes=1M --bits-per-key="$2" "$1" "$portion" 2>"$work/log"; then
            cat "$work/log"
            exit 1
        fi
    done
}


# ---- What is needed ----------------------------------------------------------------------------------

if [ -z "${TAMIS:-}" ]; then
    # shellcheck source=tools/packages.sh
    . "$root/tools/packages.sh"
    # shellcheck disable=SC2086 # one word a package
    need_packages $TAMIS_BUILD_PACKAGES wamerican-insane
    echo "building into build/release"
    (cd "$root" && cmake --preset release >/dev/null && cmake --build --preset release >/dev/null)
    TAMIS=$root/build/release/tools/tamis
fi
set -- /var/lib/apt/lists/*_Packages*
if [ ! -e "$1" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "fetching the package index (apt-get update)"
    apt-get update -qq </dev/null >&2
    set -- /var/lib/apt/lists/*_Packages*
fi
if [ ! -e "$1" ] || [ ! -r "$words" ] || [ ! -x /usr/lib/apt/apt-helper ]; then
    echo "this needs Debian's package index (apt-get update) and $words (wamerican-insane)" >&2
    exit 77
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# ---- The data ----------------------------------------------------------------------------------------

# A stanza is one record: its package's name, and the whole text, whose newlines become \n.
/usr/lib/apt/apt-helper cat-file "$@" | awk '
    BEGIN { RS = ""; FS = "\n" }
    {
        name = ""
        for (i = 1; i <= NF && name == ""; i++)
            if ($i ~ /^Package: /) name = substr($i, 10)
        gsub(/\\/, "&&")
        gsub(/\t/, "\\t")
        gsub(/\n/, "\\n")
        if (name != "") print name "\t" $0
    }' >"$work/index.tsv"
# In an order that is no order, the same every time for the same index.
shuf --random-source="$work/index.tsv" "$work/index.tsv" >"$work/shuffled.tsv"
missing_count=100000
bits_list="0 2 5 10 15 20"
if [ "$short" = 1 ]; then
    head -n 12000 "$work/shuffled.tsv" >"$work/records.tsv"
    missing_count=10000
    bits_list="0 5 10"
else
    mv "$work/shuffled.tsv" "$work/records.tsv"
fi
cut -f 1 "$work/records.tsv" | sort -u >"$work/names"
grep -xE '[a-z]+' "$words" | sort -u | comm -23 - "$work/names" |
    shuf -n "$missing_count" --random-source="$work/records.tsv" >"$work/missing"

mkdir "$work/portions"
split -a 4 -l 900 "$work/records.tsv" "$work/portions/"

say "The data: $(wc -l <"$work/records.tsv") stanzas of Debian's package index," \
    "$(wc -l <"$work/names") different names; a key is a package's name, its value the stanza as it is." \
    "They are loaded in random order, in portions of 900, with a write buffer of 1 MiB, so that many tables on" \
    "several levels come to be."
echo
echo "\$ for portion in portions/*; do tamis load --write-buffer-bytes=1M apt.db \$portion; done"
load_in_portions "$work/apt.db" 10
echo "the last of them: $(head -n 1 "$work/log")"

# ---- The tree and two lookups ------------------------------------------------------------------------

say "The tree: one line a level. Level 0 holds what was written last, in tables whose ranges overlap; below," \
    "each level is larger and its tables follow one another."
echo
echo "\$ tamis stats apt.db"
"$TAMIS" stats "$work/apt.db" | awk 'NF == 0 { exit } { print substr($0, 1, 64) }'

present=$(head -n 1 "$work/records.tsv" | cut -f 1)
absent=$(head -n 1 "$work/missing")
say "A key that is there. Each table that could hold it is asked through its filter, newest first:"
echo
echo "\$ tamis get --trace apt.db $present"
"$TAMIS" get --trace "$work/apt.db" -- "$present"

say "A word that is no package. A filter's \"no\" is certain, so its table is not read:"
echo
echo "\$ tamis get --trace apt.db $absent"
"$TAMIS" get --trace "$work/apt.db" -- "$absent" || [ $? = 1 ]

say "The same for $(wc -l <"$work/missing") English words, none of them a package. \"asked\" counts filters; \"said no\" is a" \
    "table that was not read; \"yes+not\" is a table that was read in vain. The measured rate of those stands" \
    "beside the rate that theory gives for these very filters."
echo
echo "\$ tamis get --keys-from=missing.txt --count apt.db"
"$TAMIS" get --count --keys-from="$work/missing" "$work/apt.db" || [ $? = 1 ]

# ---- Bits per key ------------------------------------------------------------------------------------

say "What bits per key buy: the same records and the same missing words, loaded anew with each size of filter." \
    "The theory is that of the filters that were asked, each as often as it was asked."
echo
printf '%12s %10s %15s %12s %12s %18s %18s\n' 'bits per key' 'delivered' 'filter memory' 'measured' 'theory' \
    'filters asked' 'tables read' '' '' '' 'rate' 'rate' 'per missing key' 'per missing key'
for bits in $bits_list; do
    store=$work/bits-$bits.db
    if [ "$bits" = 10 ]; then
        store=$work/apt.db
    else
        load_in_portions "$store" "$bits"
    fi
    "$TAMIS" get --json --keys-from="$work/missing" --bits-per-key="$bits" "$store" >"$work/json" || [ $? = 1 ]
    awk -v bits="$bits" '
        { gsub(/[",:]/, ""); fact[$1] = $2 }
        END {
            for (level = 0; level < 7; level++) {
                name = "level_" level "_"
                asked = fact[name "filter_negatives"] + fact[name "filter_false_positives"]
                all += asked
                expected += asked * fact[name "false_positive_rate_theory"]
            }
            printf "%12s %10.2f %11.1f KiB %11.4f%% %11.4f%% %18.3f %18.5f\n", bits,
                fact["total_bits_per_key_delivered"], fact["total_filter_bytes"] / 1024,
                fact["total_false_positive_rate_measured"] * 100, expected / all * 100,
                fact["total_filter_probes"] / fact["keys"], fact["tables_read"] / fact["keys"]
        }' "$work/json"
done
say "Without a filter, every table whose range holds the key is read."
