/* SPDX-License-Identifier: MIT
 *
 * tools/main.c -- the tamis command: finds the command that was asked for and runs it.
 *
 * Not here: the commands (command_*.c) and their options (cli_arguments.c).
 */
#include "cli.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static const struct cli_command *const commands[] = {
    &command_put,    &command_get,     &command_delete,     &command_scan,
    &command_load,   &command_dump,    &command_stats,      &command_inspect,
    &command_verify, &command_compact, &command_checkpoint, &command_destroy,
};

enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static const struct cli_command *
find_command(const char *name)
{
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    }
    return NULL;
}

static void
print_overview(FILE *out)
{
    fputs("usage: tamis COMMAND DB ...\n\n", out);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-8s  %s\n", commands[i]->name, commands[i]->summary);
    fputs("  version   the version of the library\n"
          "  help      this text, or the help of one command\n"
          "\n"
          "DB is the directory of a store; put and load make it if it is missing. A key or value "
          "that\n"
          "begins with a dash comes after --. A lone - is standard input or output.\n"
          "\n"
          "exit codes: 0 done or found, 1 not found, 2 the command line is wrong, 3 I/O error or "
          "damage\n",
          out);
}

static int
print_version(int argc)
{
    if (argc > 1)
        return cli_fail_usage("version takes nothing");
    printf("tamis %s (filter kernel: %s)\n", tamis_version(), tamis_filter_kernel_name());
    return CLI_OK;
}

static int
print_help(int argc, char **argv)
{
    const struct cli_command *command;

    if (argc <= 1) {
        print_overview(stdout);
        return CLI_OK;
    }
    if (argc > 2)
        return cli_fail_usage("help takes the name of one command");
    command = find_command(argv[1]);
    if (command == NULL)
        return cli_fail_usage("there is no command '%s'", argv[1]);
    cli_print_help(command, stdout);
    return CLI_OK;
}

/* A standard stream that was closed by the caller must not become a file of the store. The
 * replacement fails to be read or written, so that lost output is noticed as such. */
static void
occupy_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            abort();
    }
}

int
main(int argc, char **argv)
{
    const struct cli_command *command;
    const char *name;
    int code;

    occupy_standard_streams();
    signal(SIGPIPE, SIG_IGN); // a reader that went away is an error like any other: exit code 3
    if (argc < 2) {
        print_overview(stderr);
        return CLI_USAGE;
    }
    name = argv[1];
    command = find_command(name);
    if (command != NULL) {
        cli_command_name = command->name;
        code = cli_run(command, argc - 1, argv + 1);
    } else if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0) {
        code = print_version(argc - 1);
    } else if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 ||
               strcmp(name, "-h") == 0) {
        code = print_help(argc - 1, argv + 1);
    } else {
        code = cli_fail_usage("there is no command '%s'", name);
    }
    return cli_finish_output(code);
}
