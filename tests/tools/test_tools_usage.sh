#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A wrong command line is refused with exit code 2, names the option and its range, and touches nothing.
set -eu
# shellcheck source=tests/tools/tool_check.sh
. "$(dirname "$0")/tool_check.sh"

# refused OPTION RANGE: put with this option is a usage error that names option and range.
refused()
{
    expect 2 put "$1" s k v
    said "${1%%=*}"
    said "$2"
    no_file s
}

for value in nan NaN inf -inf -1 -0.5 33 32.0001 1e3 0x10 '' ' 1' '1 ' '1,' 10bits 1e999 ++1 .; do
    refused "--bits-per-key=$value" '0\.\.32'
done
for value in nan 0 -0.1 0.6 1 1e-7 '' 1% 0,01; do
    refused "--false-positive-rate=$value" '0\.000001\.\.0\.5'
done
for value in 63 17M 0 -1 '' 4k 4KB 4.5K 0x100 ' 64' 99999999999999999999 18446744073709551615G; do
    refused "--block-bytes=$value" '64\.\.16M'
done
for value in 63K 5G 4294967297 nan -64K K; do
    refused "--write-buffer-bytes=$value" '64K\.\.4G'
done
for value in 0 33 -1 1.5 '' two 4294967298; do
    refused "--background-threads=$value" '1\.\.32'
done
for value in 262145G -1 '' x; do
    refused "--cache-bytes=$value" '0\.\.262144G'
done
for value in snappy '' LZ4; do
    refused "--compression=$value" 'none or lz4'
done
for value in bloom '' always_true always-true empty-set 3; do
    refused "--filter-kind=$value" 'standard, blk512 or pair512'
done
for value in 0 0.5 32 10.25 1e1; do
    expect 0 put --bits-per-key="$value" "good-$value" k v
done
for value in 64 16M 4K; do
    expect 0 put --block-bytes="$value" "good-$value" k v
done
expect 0 put --false-positive-rate=1e-6 good-rate k v
expect 0 put --write-buffer-bytes 4G good-buffer k v
expect 0 put --background-threads=1 good-one k v
expect 0 put --background-threads=32 good-many k v
expect 0 put --cache-bytes 262144G good-cache k v

expect 2 scan --limit=-1 s
expect 2 scan --limit=1.5 s
expect 2 scan --limit=99999999999999999999 s
expect 2 scan --limit= s
expect 2 load --format=json s file
said '--format.*tsv'

# Options that are not the command's, values where none belong, missing values, missing operands, too many of them.
expect 2 get --sync s k
said "there is no option '--sync'"
expect 2 put --frobnicate s k v
expect 2 put -x s k v
expect 2 put --sync=yes s k v
said 'takes no value'
expect 2 put s k v --bits-per-key
said 'takes a value'
expect 2 put
expect 2 put s
expect 2 put s k
expect 2 put s k v w
expect 2 get s
expect 2 get s k l
expect 2 get s k --keys-from=file
expect 2 get s k --count
expect 2 delete s
expect 2 scan
expect 2 scan s t
expect 2 scan --reverse=yes s
expect 2 get --reverse s k
expect 2 dump --count s
expect 2 load s
expect 2 dump s t u
expect 2 inspect
expect 2 destroy
expect 2 put --escaped s 'k\q' v
said 'byte 2'
no_file s

# An empty path is none.
for command in put get delete scan load dump stats inspect verify compact checkpoint destroy; do
    case $command in
    put) set -- '' k v ;;
    get | delete) set -- '' k ;;
    load) set -- s '' ;;
    checkpoint) set -- '' s ;;
    destroy) set -- --yes '' ;;
    *) set -- '' ;;
    esac
    expect 2 "$command" "$@"
    said 'an empty path'
done
expect 2 dump s ''
expect 2 checkpoint s ''
expect 2 get --keys-from= s
said '^tamis get: --keys-from takes a file'
expect 2 version s
expect 2 help put get
no_file s
tools_done
