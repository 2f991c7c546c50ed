# SPDX-License-Identifier: MIT
#
# tools/packages.sh -- install Debian packages that are missing; sourced by tools/demo.sh and tests/run.sh.
# Not here: what is needed, which each of the two says itself.
# shellcheck shell=sh

# What building and testing take.
# shellcheck disable=SC2034 # used by those who source this
TAMIS_BUILD_PACKAGES="gcc g++ libc6-dev cmake ninja-build pkg-config libxxhash-dev liblz4-dev libjansson-dev check libsubunit-dev"

# package_is_there NAME
package_is_there()
{
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# need_packages NAME...: nothing happens, not even a look at the network, when all of them are there.
need_packages()
{
    command -v dpkg-query >/dev/null 2>&1 || return 0
    missing=
    for package in "$@"; do
        package_is_there "$package" || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" != 0 ]; then
        echo "missing packages; as root: apt-get install$missing" >&2
        return 1
    fi
    echo "installing$missing" >&2
    # shellcheck disable=SC2086 # one word a package
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing \
        </dev/null >/dev/null 2>&1 && return 0
    apt-get update -qq </dev/null >&2
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing \
        </dev/null >/dev/null
}
