/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_fault_sweep.c -- each call to the operating system fails in each way it can, once and for ever.
 *
 * A life is run once to learn its calls; then once for every call and effect. While it lives, every answer is right or an
 * error; afterwards the cause goes away, and the store is opened as a killed process left it, as close left it, and as
 * power cuts left it. Where there are more cases than time every k-th is taken, the seed deciding where to begin.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/fault_workload.h"

enum {
    STEPS = 70,
    CALLS_MAX = 4000,
    CASES = 1200,   // of each of the two kinds of logs; half a minute or so in all
    POWER_CUTS = 2, // of SIM_POLICY_COUNT, after each fault
};

/* A way to fail. */
struct effect {
    const char *name;
    enum sim_effect effect;
    int os_error;
    unsigned tolerated; // what writes, flushes, opening and closing may answer
};

#define IO_OR_FULL (WORKLOAD_BIT(TAMIS_IO) | WORKLOAD_BIT(TAMIS_NO_SPACE))

static const struct effect effects[] = {
    {"EIO", SIM_ERROR, EIO, WORKLOAD_BIT(TAMIS_IO)},
    {"ENOSPC", SIM_ERROR, ENOSPC, IO_OR_FULL},
    {"ENOMEM", SIM_ERROR, ENOMEM, WORKLOAD_BIT(TAMIS_IO) | WORKLOAD_BIT(TAMIS_NO_MEMORY)},
    {"EINTR", SIM_ERROR, EINTR, WORKLOAD_BIT(TAMIS_IO)},
    {"EMFILE", SIM_ERROR, EMFILE, WORKLOAD_BIT(TAMIS_IO)},
    {"short", SIM_SHORT, 0, 0},
    {"flip", SIM_FLIP, 0, WORKLOAD_BIT(TAMIS_CORRUPT) | WORKLOAD_BIT(TAMIS_UNSUPPORTED)},
    {"F1", SIM_SYNC_DROPS, 0, WORKLOAD_BIT(TAMIS_IO)},
    {"F2", SIM_SYNC_FAILS_DONE, 0, WORKLOAD_BIT(TAMIS_IO)},
    {"F5", SIM_SYNC_LATE, 0, WORKLOAD_BIT(TAMIS_IO)},
};

enum { EFFECT_COUNT = sizeof effects / sizeof effects[0] };

struct seen_call {
    enum sim_op op;
    enum tm_os_class file_class;
    uint64_t length;
};

/* The calls of the life without a fault. */
static struct seen_call calls[CALLS_MAX];
static size_t call_count;

static struct workload workload;
static uint64_t fired[SIM_OP_COUNT][EFFECT_COUNT];
static uint64_t image_counts[SIM_POLICY_COUNT + 2];
static uint64_t
    refused_images; // power cuts after F5, which broke the promise of a sync: an error is right

static void
record_call(void *arg, const struct sim_call *call)
{
    (void)arg;
    if (call_count < CALLS_MAX)
        calls[call_count] = (struct seen_call){call->op, call->file_class, call->length};
    call_count++;
}

static bool
can_fail(const struct effect *effect, const struct seen_call *call)
{
    switch (effect->effect) {
    case SIM_SHORT:
        return (call->op == SIM_PREAD || call->op == SIM_PWRITE) && call->length >= 2;
    case SIM_FLIP:
        return call->op == SIM_PREAD && call->length >= 1;
    case SIM_SYNC_DROPS:
    case SIM_SYNC_FAILS_DONE:
    case SIM_SYNC_LATE:
        return call->op == SIM_SYNC;
    case SIM_ERROR:
        break;
    }
    switch (effect->os_error) {
    case ENOSPC:
        return call->op == SIM_OPEN || call->op == SIM_MAKE_DIR || call->op == SIM_PWRITE ||
               call->op == SIM_ALLOCATE || call->op == SIM_SYNC || call->op == SIM_SYNC_DIR ||
               call->op == SIM_RENAME || call->op == SIM_SYNC_PARENT;
    case EINTR: // the others do not wait
        return call->op == SIM_OPEN_DIR || call->op == SIM_OPEN || call->op == SIM_SYNC_PARENT ||
               call->op == SIM_SYNC || call->op == SIM_SYNC_DIR || call->op == SIM_TRUNCATE ||
               call->op == SIM_ALLOCATE || call->op == SIM_LOCK || call->op == SIM_RENAME ||
               call->op == SIM_REMOVE || call->op == SIM_PREAD || call->op == SIM_PWRITE;
    case ENOMEM: // of the kernel's; none of these is known to have done nothing
        return call->op == SIM_OPEN || call->op == SIM_SYNC || call->op == SIM_SYNC_DIR ||
               call->op == SIM_MAP || call->op == SIM_RENAME || call->op == SIM_PWRITE;
    case EMFILE:
        return call->op == SIM_OPEN || call->op == SIM_OPEN_DIR;
    default:
        return true;
    }
}

/* The rule that hits call `index` of the recorded ones. */
static struct sim_fault
rule_for(const struct effect *effect, size_t index, bool sticky)
{
    const struct seen_call *hit = &calls[index];
    struct sim_fault fault = {hit->op,        hit->file_class,  1,
                              effect->effect, effect->os_error, sticky};

    for (size_t i = 0; i < index; i++)
        fault.nth += calls[i].op == hit->op &&
                     (hit->file_class == 0 || calls[i].file_class == hit->file_class) &&
                     (effect->effect == SIM_ERROR || can_fail(effect, &calls[i]));
    return fault;
}

static size_t
count_calls(enum sim_op op, enum tm_os_class file_class)
{
    size_t count = 0;

    for (size_t i = 0; i < call_count; i++)
        count += calls[i].op == op && calls[i].file_class == file_class;
    return count;
}

/* The life is worth its name: it flushed, compacted and was opened again. */
static void
check_variety(void)
{
    ck_assert_uint_gt(count_calls(SIM_SYNC, TM_OS_CLASS_TABLE), 5);
    ck_assert_uint_gt(count_calls(SIM_REMOVE, TM_OS_CLASS_TABLE), 3);
    ck_assert_uint_gt(count_calls(SIM_SYNC, TM_OS_CLASS_LOG), 5);
    ck_assert_uint_gt(count_calls(SIM_RENAME, TM_OS_CLASS_DIR), 1);
}

static void
learn_calls(uint64_t seed, unsigned flags)
{
    struct world *world = world_create(seed, flags);

    call_count = 0;
    snprintf(workload_case, sizeof workload_case, "no fault");
    sim_watch(world->sim, baton_pass, record_call, world->baton);
    workload_init(&workload, world, seed);
    workload_run(&workload, STEPS);
    workload_close(&workload);
    ck_assert_uint_le(call_count, CALLS_MAX);
    check_variety();
    sim_watch(world->sim, baton_pass, NULL, world->baton);
    world_destroy(world);
}

/* What the fault explains. */
static void
set_tolerance(const struct effect *effect, const struct sim_fault *fault)
{
    workload.once = !fault->sticky && effect->effect != SIM_SYNC_LATE;
    workload.tolerated = effect->tolerated;
    if (effect->os_error == EINTR && !fault->sticky)
        workload.tolerated = 0;
    if (fault->op == SIM_PREAD)
        workload.reads_tolerated = workload.tolerated;
    workload.failure_is_final = fault->file_class == TM_OS_CLASS_LOG ||
                                fault->file_class == TM_OS_CLASS_MANIFEST ||
                                fault->file_class == TM_OS_CLASS_CURRENT;
}

/* After a sync that lied (F5): a key shows what was written once, or nothing, or an error. */
static void
judge_lied_to(struct sim *image_sim)
{
    struct world *world = workload.world;
    struct oracle_state state;
    tamis_error err = {0};
    size_t with;

    world_take_sim(world, image_sim);
    if (oracle_open(world, &workload.db, &err) != TAMIS_OK) {
        ck_assert_msg(err.code == TAMIS_CORRUPT, "%s: open gives %s: %s", workload_case,
                      tamis_status_name(err.code), err.message);
        refused_images++;
        return;
    }
    if (workload_read(workload.db, &state, &err))
        ck_assert_msg(workload_find(&workload, &state, 0, &with) != ORACLE_NONE,
                      "%s: no prefix is there after a power cut", workload_case);
    else
        refused_images++;
    check_ok(tamis_close(workload.db, &err), err);
    workload.db = NULL;
}

static void
judge_power_cut(struct sim *image_sim, enum sim_policy policy, const struct effect *effect,
                size_t synced)
{
    bool keeps_all = policy == SIM_P1_ALL || policy == SIM_P7_UNLINK_UNDONE;

    image_counts[policy]++;
    if (effect->effect == SIM_SYNC_LATE)
        judge_lied_to(image_sim);
    else // F1 drops pages of writes that did not ask for a sync, too
        workload_judge(&workload, image_sim,
                       keeps_all && effect->effect != SIM_SYNC_DROPS ? workload.acked : synced,
                       false, sim_policy_name(policy));
}

static void
run_case(const struct effect *effect, size_t index, bool sticky, uint64_t seed, unsigned flags,
         struct rng *rng)
{
    struct world *world = world_create(seed, flags);
    struct sim_fault fault = rule_for(effect, index, sticky);
    bool lied = effect->effect == SIM_SYNC_LATE;
    enum sim_policy policies[POWER_CUTS];
    struct sim *cuts[POWER_CUTS];
    struct sim *killed;
    size_t synced_before_close;
    uint64_t hits;
    size_t rule;

    snprintf(workload_case, sizeof workload_case,
             "seed %" PRIu64 ", %s, %s at call %zu (%s, class %d) %s", seed,
             (flags & WORLD_MAP_LOGS) != 0 ? "mapped logs" : "written logs", effect->name,
             index + 1, sim_op_name(fault.op), (int)fault.file_class, sticky ? "for ever" : "once");
    rule = sim_fault_add(world->sim, fault);
    workload_init(&workload, world, seed);
    set_tolerance(effect, &fault);
    workload_run(&workload, STEPS);

    killed = sim_clone(world->sim);
    for (size_t i = 0; i < POWER_CUTS; i++) {
        policies[i] = (enum sim_policy)rng_below(rng, SIM_POLICY_COUNT);
        cuts[i] = sim_crash(world->sim, policies[i], rng_next(rng));
    }
    synced_before_close = workload.synced;
    workload_close(&workload);
    hits = sim_fault_fired(world->sim, rule);
    ck_assert_msg(hits != 0, "%s: the fault did not fire", workload_case);
    fired[fault.op][effect - effects]++;

    workload_judge(&workload, sim_clone(world->sim), workload.acked, lied,
                   "closed and opened again");
    image_counts[SIM_POLICY_COUNT]++;
    workload_judge(&workload, killed, workload.acked, lied, "killed");
    image_counts[SIM_POLICY_COUNT + 1]++;
    for (size_t i = 0; i < POWER_CUTS; i++)
        judge_power_cut(cuts[i], policies[i], effect, synced_before_close);
    world_destroy(world);
}

/* ---- The sweep ------------------------------------------------------------------------------------------ */

static void
print_counts(const char *what, uint64_t case_count, uint64_t chosen_count)
{
    static const char *const kinds[] = {"closed and opened again", "killed"};

    printf("%s: %" PRIu64 " of %" PRIu64 " cases of %zu calls, each fired\n", what, chosen_count,
           case_count, call_count);
    for (size_t op = 0; op < SIM_OP_COUNT; op++)
        for (size_t i = 0; i < EFFECT_COUNT; i++)
            if (fired[op][i] != 0)
                printf("  %s %s %" PRIu64, sim_op_name((enum sim_op)op), effects[i].name,
                       fired[op][i]);
    printf("\n  images:");
    for (size_t i = 0; i < SIM_POLICY_COUNT + 2; i++)
        printf(" %s %" PRIu64,
               i < SIM_POLICY_COUNT ? sim_policy_name((enum sim_policy)i)
                                    : kinds[i - SIM_POLICY_COUNT],
               image_counts[i]);
    printf("; refused after a sync that lied %" PRIu64 "\n", refused_images);
    fflush(stdout);
}

/* All cases in a row: effect by effect, call by call, once and for ever; every k-th runs. */
static void
sweep(const char *what, uint64_t seed, unsigned flags)
{
    struct rng rng = rng_from(seed * 31);
    uint64_t case_count = 0;
    uint64_t chosen_count = 0;
    uint64_t stride;
    uint64_t phase;
    uint64_t at = 0;

    learn_calls(seed, flags);
    for (size_t e = 0; e < EFFECT_COUNT; e++)
        for (size_t i = 0; i < call_count; i++)
            case_count += can_fail(&effects[e], &calls[i]) ? 2 : 0;
    stride = (case_count + oracle_scaled(CASES) - 1) / oracle_scaled(CASES);
    phase = rng_below(&rng, stride);
    for (size_t e = 0; e < EFFECT_COUNT; e++)
        for (size_t i = 0; i < call_count; i++)
            for (int sticky = 0; can_fail(&effects[e], &calls[i]) && sticky < 2; sticky++)
                if (at++ % stride == phase) {
                    run_case(&effects[e], i, sticky != 0, seed, flags, &rng);
                    chosen_count++;
                }
    print_counts(what, case_count, chosen_count);
}

START_TEST(a_fault_of_any_call_loses_nothing_when_logs_are_written)
{
    sweep("written logs", rng_seed("a_fault_of_any_call_loses_nothing_when_logs_are_written", 1),
          WORLD_BATON);
}
END_TEST

START_TEST(a_fault_of_any_call_loses_nothing_when_logs_are_mapped)
{
    sweep("mapped logs", rng_seed("a_fault_of_any_call_loses_nothing_when_logs_are_mapped", 1),
          WORLD_BATON | WORLD_MAP_LOGS);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("fault_sweep");
    TCase *tests = tcase_create("fault_sweep");

    signal(SIGABRT, workload_show_case);
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, a_fault_of_any_call_loses_nothing_when_logs_are_written);
    tcase_add_test(tests, a_fault_of_any_call_loses_nothing_when_logs_are_mapped);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
