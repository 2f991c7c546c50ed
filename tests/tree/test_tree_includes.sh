#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Arrows between folders go one way: filter <- sstable <- engine <- tools, bench. A file may include its own folder and
# those to the left; tools and bench take <tamis/...> and their own files only.
set -eu
# shellcheck source=tests/tree/tree_check.sh
. "$(dirname "$0")/tree_check.sh"
cd "$SOURCE_DIR"

found=$(find filter sstable engine tools bench -name '*.[ch]' -exec awk '
    function rank_of(layer) {
        return layer == "filter" ? 1 : layer == "sstable" ? 2 : layer == "engine" ? 3 : 0
    }
    /^[ \t]*#[ \t]*include[ \t]*[<"]/ {
        split(FILENAME, parts, "/")
        folder = parts[1]
        name = $0
        sub(/^[^<"]*[<"]/, "", name)
        sub(/[>"].*$/, "", name)
        quoted = $0 ~ /include[ \t]*"/
        if (name == "tamis/filter.h") target = "filter"
        else if (name == "tamis/types.h") target = "sstable"
        else if (name == "tamis/tamis.h") target = "engine"
        else if (quoted && index(name, "/")) target = substr(name, 1, index(name, "/") - 1)
        else if (quoted) target = "own"
        else next
        public = name ~ /^tamis\//
        if (folder == "tools" || folder == "bench") {
            if (!public && target != "own") print FILENAME ":" FNR ": " name
        } else if (target == "own") {
            print FILENAME ":" FNR ": " name " (written from the root: \"" folder "/" name "\")"
        } else if (rank_of(target) == 0 || rank_of(target) > rank_of(folder)) {
            print FILENAME ":" FNR ": " name
        }
    }' {} +)
[ -z "$found" ] || problem "includes that go the wrong way:
$found"

# The check itself must be able to see something.
count=$(grep -rhc '#include "sstable/' engine | awk '{ n += $1 } END { print n + 0 }')
[ "$count" -gt 0 ] || problem "no include of sstable/ found in engine/: is this script looking at the right place?"
tree_done
