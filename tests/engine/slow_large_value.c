/* SPDX-License-Identifier: MIT
 *
 * tests/engine/slow_large_value.c -- a value of the largest size there is goes through log, memtable and table.
 *
 * Not part of the default run: ctest -C slow -L slow. Needs 8 GiB of memory, and says SKIPPED without.
 */
#include "tests/engine/one_store.h"

#include "sstable/env.h"

static uint64_t
available_bytes(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    char line[256];
    unsigned long long kilobytes = 0;

    while (file != NULL && kilobytes == 0 && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "MemAvailable: %llu kB", &kilobytes) != 1)
            kilobytes = 0;
    if (file != NULL)
        fclose(file);
    return (uint64_t)kilobytes << 10;
}

START_TEST(a_value_of_a_gibibyte_is_kept)
{
    tamis_slice value = {NULL, TAMIS_VALUE_BYTES_MAX};
    tamis_pinned pinned;
    uint8_t *bytes;

    if (available_bytes() < (uint64_t)8 << 30) {
        printf("a_value_of_a_gibibyte_is_kept: SKIPPED, less than 8 GiB of memory\n");
        return;
    }
    bytes = malloc(value.length);
    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < value.length; i += 8) {
        uint64_t word = i * 0x9e3779b97f4a7c15u;

        memcpy(bytes + i, &word, sizeof word);
    }
    value.data = bytes;
    one_put(tamis_text("k"), value);
    one_store_reopen();
    check_ok(tamis_get_pinned(one.db, NULL, tamis_text("k"), &pinned, &one.err), one.err);
    ck_assert(tm_slice_equal(pinned.value, value));
    tamis_pinned_release(&pinned);
    free(bytes);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("large value");
    TCase *tests = tcase_create("large value");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, one_store_begin, one_store_end);
    tcase_add_test(tests, a_value_of_a_gibibyte_is_kept);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
