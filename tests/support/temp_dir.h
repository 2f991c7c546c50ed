/* SPDX-License-Identifier: MIT
 *
 * tests/support/temp_dir.h -- a scratch directory on the real file system, made and removed.
 *
 * Failure ends the test (abort).
 */
#ifndef TAMIS_TESTS_SUPPORT_TEMP_DIR_H
#define TAMIS_TESTS_SUPPORT_TEMP_DIR_H

/** A new directory under TMPDIR (or /tmp). malloc'ed; pass it to temp_dir_remove(). */
char *temp_dir_make(void);
/** As temp_dir_make(), under `parent`: /dev/shm, say. NULL when that is not possible there. */
char *temp_dir_make_under(const char *parent);
/** Remove it and all that is in it, and free `path`. NULL allowed. */
void temp_dir_remove(char *path);
/** PATH/NAME, malloc'ed. */
char *temp_dir_path(const char *path, const char *name);

#endif
