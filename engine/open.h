/* SPDX-License-Identifier: MIT
 *
 * engine/open.h -- tamis_open() with the runtime chosen by the caller; the seam of deterministic tests.
 */
#ifndef TM_ENGINE_OPEN_H
#define TM_ENGINE_OPEN_H

#include <tamis/tamis.h>

#include "sstable/runtime.h"

/** As tamis_open(); `runtime` is borrowed until close. */
TAMIS_NODISCARD tamis_status tm_open(const char *path, const tamis_options *options,
                                     const struct tm_runtime *runtime, tamis_db **db_out,
                                     tamis_error *err);

#endif
