#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What `cmake --install` leaves can be moved elsewhere, and a small program builds against it and runs: by pkg-config and
# by find_package, with the shared library and with the static one. DESTDIR works.
set -eu
# shellcheck source=tests/tree/tree_check.sh
. "$(dirname "$0")/tree_check.sh"
CC=${CC:-cc}
fresh_scratch
cd "$SCRATCH_DIR"

cmake --install "$BUILD_DIR" --prefix "$SCRATCH_DIR/first" >install.log
mv first moved
root=$SCRATCH_DIR/moved
pc=$(find "$root" -name tamis.pc)
libdir=${pc%/pkgconfig/tamis.pc}
for file in include/tamis/tamis.h include/tamis/types.h include/tamis/filter.h bin/tamis; do
    [ -f "$root/$file" ] || problem "not installed: $file"
done
for file in libtamis.a libtamis.so libtamis.so.0 cmake/tamis/tamisConfig.cmake \
    cmake/tamis/tamisConfigVersion.cmake; do
    [ -e "$libdir/$file" ] || problem "not installed: $libdir/$file"
done
[ "$(find "$root/include" -type f | wc -l)" = 3 ] || problem "more headers than the public ones"
objdump -p "$libdir/libtamis.so" | grep -q 'SONAME *libtamis\.so\.0$' || problem "the SONAME is another"
"$root/bin/tamis" version | grep -q '^tamis [0-9]' || problem "the installed command does not run"
if grep -rlF -e "$BUILD_DIR" -e "$SOURCE_DIR" -e "$SCRATCH_DIR/first" "$root" >paths.log; then
    problem "files that name the place of the build: $(tr '\n' ' ' <paths.log)"
fi

cat >small.c <<'C'
#include <stdio.h>
#include <tamis/tamis.h>

int main(int argc, char **argv)
{
    tamis_options options;
    tamis_db *db = NULL;
    char value[8] = "";
    size_t length = 0;

    tamis_options_init(&options);
    options.create_if_missing = true;
    if (argc != 2 || tamis_open(argv[1], &options, &db, NULL) != TAMIS_OK ||
        tamis_put(db, NULL, tamis_text("apple"), tamis_text("red"), NULL) != TAMIS_OK ||
        tamis_get(db, NULL, tamis_text("apple"), value, 7, &length, NULL) != TAMIS_OK)
        return 1;
    printf("apple is %s\n", value);
    return tamis_close(db, NULL) == TAMIS_OK ? 0 : 1;
}
C

# runs NAME PROGRAM: it prints what it should.
runs()
{
    output=$(LD_LIBRARY_PATH="$libdir" "$2" "$SCRATCH_DIR/store-$1") || output="exit code $?"
    [ "$output" = "apple is red" ] || problem "$1: $output"
}

PKG_CONFIG_PATH=$libdir/pkgconfig
export PKG_CONFIG_PATH
[ "$(pkg-config --modversion tamis)" = "$(sed -n 's/^Version: //p' "$pc")" ] || problem "pkg-config: version"
# shellcheck disable=SC2046 # words are wanted
if "$CC" small.c -o pc-shared $(pkg-config --cflags --libs tamis); then
    runs pc-shared ./pc-shared
    if LD_LIBRARY_PATH='' ./pc-shared x >/dev/null 2>&1; then
        problem "pkg-config: the program does not use the shared library"
    fi
else
    problem "pkg-config, shared: does not build"
fi
# shellcheck disable=SC2046
if "$CC" small.c -o pc-static $(pkg-config --cflags tamis) "$libdir/libtamis.a" \
    $(pkg-config --static --libs tamis | sed 's/-ltamis//'); then
    libdir_kept=$libdir
    libdir=/nowhere
    runs pc-static ./pc-static
    libdir=$libdir_kept
else
    problem "pkg-config, static: does not build"
fi

mkdir project
cp small.c project/
cat >project/CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(small C)
find_package(tamis 0.1 REQUIRED)
add_executable(cm-shared small.c)
target_link_libraries(cm-shared PRIVATE tamis::tamis)
add_executable(cm-static small.c)
target_link_libraries(cm-static PRIVATE tamis::tamis_static)
CMAKE
if cmake -G Ninja -S project -B project/build -DCMAKE_PREFIX_PATH="$root" \
    -DCMAKE_C_COMPILER="$CC" >cmake.log 2>&1 &&
    cmake --build project/build >>cmake.log 2>&1; then
    runs cm-shared project/build/cm-shared
    runs cm-static project/build/cm-static
    if ldd project/build/cm-static | grep -q libtamis; then
        problem "find_package: tamis_static uses the shared library"
    fi
else
    cat cmake.log
    problem "find_package: does not build"
fi

DESTDIR=$SCRATCH_DIR/dest cmake --install "$BUILD_DIR" >>install.log
find "$SCRATCH_DIR/dest" -name tamis.h | grep -q . || problem "DESTDIR: nothing there"
tree_done
