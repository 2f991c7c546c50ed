/* SPDX-License-Identifier: MIT
 *
 * tests/support/temp_dir.c -- scratch directories.
 */
#include "tests/support/temp_dir.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static void
die(const char *what, const char *path)
{
    fprintf(stderr, "temp_dir: cannot %s '%s'\n", what, path);
    abort();
}

char *
temp_dir_path(const char *path, const char *name)
{
    char *joined = NULL;

    if (asprintf(&joined, "%s/%s", path, name) < 0)
        die("name", path);
    return joined;
}

char *
temp_dir_make_under(const char *parent)
{
    char *path = temp_dir_path(parent, "tamis-test-XXXXXX");

    if (mkdtemp(path) == NULL) {
        free(path);
        return NULL;
    }
    return path;
}

char *
temp_dir_make(void)
{
    const char *parent = getenv("TMPDIR");
    char *path = temp_dir_make_under(parent != NULL ? parent : "/tmp");

    if (path == NULL)
        die("make a directory under", parent != NULL ? parent : "/tmp");
    return path;
}

/* Before its contents: a directory without permission is opened up. */
static int
open_up(const char *path, const struct stat *found, int type, struct FTW *place)
{
    (void)found;
    (void)place;
    return type == FTW_DNR || type == FTW_D ? chmod(path, 0700) : 0;
}

static int
remove_one(const char *path, const struct stat *found, int type, struct FTW *place)
{
    (void)found;
    (void)type;
    (void)place;
    return remove(path);
}

void
temp_dir_remove(char *path)
{
    const int descriptors = 16;

    if (path == NULL)
        return;
    if (nftw(path, open_up, descriptors, FTW_PHYS) != 0 ||
        nftw(path, remove_one, descriptors, FTW_DEPTH | FTW_PHYS) != 0)
        die("remove", path);
    free(path);
}
