/* SPDX-License-Identifier: MIT
 *
 * tests/engine/test_header_example.c -- the example that opens <tamis/tamis.h> compiles as it stands there, and does
 * what it says.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/support/check_status.h"
#include "tests/support/temp_dir.h"

#if defined __SANITIZE_ADDRESS__
#define SANITIZERS "-fsanitize=address,undefined"
#elif defined __SANITIZE_THREAD__
#define SANITIZERS "-fsanitize=thread"
#else
#define SANITIZERS ""
#endif

#define HEADER TAMIS_SOURCE_DIR "/engine/include/tamis/tamis.h"

static char *scratch;
static char *source;
static char *program;

/* Write the example, from its first #include to the brace that ends main(), without the comment's margin. */
static void
cut_example(void)
{
    static const char margin[] = " *     ";
    FILE *header = fopen(HEADER, "r");
    FILE *example = fopen(source, "w");
    char line[512];
    bool inside = false;
    bool ended = false;

    ck_assert(header != NULL && example != NULL);
    while (!ended && fgets(line, sizeof line, header) != NULL) {
        bool indented = strncmp(line, margin, sizeof margin - 1) == 0;

        inside |= indented && strncmp(line + sizeof margin - 1, "#include", 8) == 0;
        if (inside)
            fputs(indented ? line + sizeof margin - 1 : "\n", example);
        ended = inside && strcmp(line, " *     }\n") == 0;
    }
    ck_assert_msg(ended, "no example in %s", HEADER);
    ck_assert_int_eq(fclose(example), 0);
    fclose(header);
}

/* Run a command of the shell; its output (standard error too) goes to `text`. Returns its exit code. */
static int
run(const char *command, char *text, size_t size)
{
    FILE *output = popen(command, "r");
    size_t length;
    int state;

    ck_assert_ptr_nonnull(output);
    length = fread(text, 1, size - 1, output);
    text[length] = '\0';
    state = pclose(output);
    ck_assert(WIFEXITED(state));
    return WEXITSTATUS(state);
}

static void
setup(void)
{
    char text[4096];
    char *command = NULL;

    scratch = temp_dir_make();
    source = temp_dir_path(scratch, "example.c");
    program = temp_dir_path(scratch, "example");
    cut_example();
    ck_assert_int_gt(asprintf(&command,
                              TAMIS_CC
                              " -std=c11 -Wall -Wextra -Wshadow -pedantic -Werror " SANITIZERS
                              " -I'" TAMIS_SOURCE_DIR "/engine/include'"
                              " -I'" TAMIS_SOURCE_DIR "/sstable/include'"
                              " -I'" TAMIS_SOURCE_DIR "/filter/include'"
                              " -o '%s' '%s' '" TAMIS_STATIC_LIBRARY "' -llz4 -lpthread -lm 2>&1",
                              program, source),
                     0);
    ck_assert_msg(run(command, text, sizeof text) == 0, "%s\n%s", command, text);
    free(command);
}

static void
teardown(void)
{
    free(program);
    free(source);
    temp_dir_remove(scratch);
}

static int
run_example(const char *path, char *text, size_t size)
{
    char *command = NULL;
    int end;

    ck_assert_int_gt(asprintf(&command, "cd '%s' && '%s' %s 2>&1", scratch, program, path), 0);
    end = run(command, text, size);
    free(command);
    return end;
}

START_TEST(the_example_makes_a_store_and_opens_it_again)
{
    char text[1024];

    for (int round = 0; round < 2; round++) {
        ck_assert_int_eq(run_example("", text, sizeof text), 0);
        ck_assert_str_eq(text, "apple is red\n");
        ck_assert_int_eq(run_example("other.db", text, sizeof text), 0);
        ck_assert_str_eq(text, "apple is red\n");
    }
    ck_assert_int_eq(run_example("fruit.db", text, sizeof text), 0); // the name it chose itself
    ck_assert_str_eq(text, "apple is red\n");
}
END_TEST

START_TEST(the_example_says_what_is_wrong)
{
    char text[1024];

    ck_assert_int_eq(run_example("no/parent", text, sizeof text), 1);
    ck_assert_ptr_nonnull(strstr(text, "no/parent"));
    ck_assert_int_eq(run_example("example.c", text, sizeof text), 1);
    ck_assert_ptr_nonnull(strstr(text, "example.c"));
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("header_example");
    TCase *tests = tcase_create("header_example");

    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, setup, teardown);
    tcase_add_test(tests, the_example_makes_a_store_and_opens_it_again);
    tcase_add_test(tests, the_example_says_what_is_wrong);
    suite_add_tcase(suite, tests);
    return check_run(suite);
}
