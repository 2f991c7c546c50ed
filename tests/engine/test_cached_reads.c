/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_cached_reads.c -- what a lookup asks of the system when memory has all it needs: nothing.
 *
 * A child opens a store, reads everything once, and then gives up the right to make any system call but write (a filter of
 * seccomp): the kernel ends it at the first other one.
 */
#include "tests/engine/one_store.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/fault_alloc.h"
#include "tests/support/rng.h"

enum { KEYS = 20000, LOOKUPS = 1000000 };

/* What the child reports. */
struct report {
    uint64_t found, absent;
    uint64_t allocations;
};

static char key_texts[2 * KEYS][16];
static struct fault_alloc counting;
static tamis_allocator allocator; // that counts

/* Even numbers are there: most of them in tables, the last tenth in the memtable. Nothing is left to do in the background, which would
 * bring new tables and empty memtables. */
static void
fill(void)
{
    for (unsigned i = 0; i < 2 * KEYS; i++) {
        char text[32];

        snprintf(text, sizeof text, "%015u", i);
        memcpy(key_texts[i], text, 15);
    }
    for (unsigned i = 0; i < KEYS; i++) {
        one_put((tamis_slice){key_texts[2 * i], 15}, (tamis_slice){key_texts[2 * i], 15});
        if (i == KEYS - KEYS / 10)
            one_flush();
    }
    one_wait_idle();
}

static void
look_up(unsigned number, struct report *report)
{
    char value[16];
    size_t length = 0;
    tamis_error err;
    tamis_status status =
        tamis_get(one.db, NULL, (tamis_slice){key_texts[number], 15}, value, 16, &length, &err);

    report->found += status == TAMIS_OK && length == 15;
    report->absent += status == TAMIS_NOT_FOUND;
}

/* Of this thread; what it does otherwise ends the process. False: not to be had here. */
static bool
allow_only_write(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_write, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog filter = {sizeof program / sizeof program[0], program};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* In the child; does not return. With `also_calls` one system call too many, to show that it is noticed. */
static void
read_without_calls(int pipe_end, bool also_calls)
{
    struct report report = {0};
    struct rng rng = rng_from(7);
    uint64_t allocations;

    for (unsigned i = 0; i < 2 * KEYS; i++)
        look_up(i, &report);
    report = (struct report){0};
    allocations = atomic_load(&counting.call_count);
    if (!allow_only_write()) {
        report.absent = UINT64_MAX; // not to be had here
    } else {
        for (unsigned i = 0; i < LOOKUPS; i++)
            look_up((unsigned)rng_below(&rng, 2 * KEYS), &report);
        if (also_calls)
            (void)getppid();
    }
    report.allocations = atomic_load(&counting.call_count) - allocations;
    if (write(pipe_end, &report, sizeof report) != sizeof report)
        abort();
    for (;;)
        ; // the parent ends it: leaving needs a call that is not allowed
}

/* False: the child was killed before it reported. */
static bool
run_child(bool also_calls, struct report *report)
{
    int pipe_ends[2];
    pid_t child;
    ssize_t count;

    ck_assert_int_eq(pipe(pipe_ends), 0);
    one_store_close(); // a handle belongs to the process that opened it
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        close(pipe_ends[0]);
        one_store_open();
        fill();
        read_without_calls(pipe_ends[1], also_calls);
    }
    close(pipe_ends[1]);
    count = read(pipe_ends[0], report, sizeof *report);
    close(pipe_ends[0]);
    kill(child, SIGKILL);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    one_store_open();
    return count == sizeof *report;
}

START_TEST(a_million_cached_lookups_make_no_system_call_and_allocate_nothing)
{
    struct report report;

    fault_alloc_init(&counting);
    allocator = fault_alloc_allocator(&counting);
    one.options.allocator = &allocator;
    one.options.write_buffer_bytes = 8 << 20; // holds the last tenth
    one_store_reopen();
    ck_assert(run_child(false, &report));
    if (report.absent == UINT64_MAX) {
        printf("not run: this kernel has no filters of system calls\n");
        return;
    }
    printf("%llu found, %llu absent\n", (unsigned long long)report.found,
           (unsigned long long)report.absent);
    ck_assert_uint_eq(report.found + report.absent, LOOKUPS);
    ck_assert_uint_gt(report.found, LOOKUPS / 3);
    ck_assert_uint_gt(report.absent, LOOKUPS / 3);
    ck_assert_uint_eq(report.allocations, 0);
    ck_assert(!run_child(true, &report)); // and one call would have been seen
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("cached reads");
    TCase *tests = tcase_create("cached reads");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, one_store_begin, one_store_end);
    tcase_add_test(tests, a_million_cached_lookups_make_no_system_call_and_allocate_nothing);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
