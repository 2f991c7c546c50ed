/* SPDX-License-Identifier: MIT
 *
 * tests/support/child.c -- forked processes for tests.
 */
#include "tests/support/child.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static void
read_all(int fd, char *text, size_t size)
{
    size_t length = 0;
    char rest[256];

    for (;;) {
        size_t room = size - 1 - length;
        ssize_t got = room != 0 ? read(fd, text + length, room) : read(fd, rest, sizeof rest);

        if (got <= 0)
            break;
        length += room != 0 ? (size_t)got : 0;
    }
    text[length] = '\0';
}

int
child_run(int (*run)(void *arg), void *arg, char *text, size_t size)
{
    int ends[2] = {-1, -1};
    int state = 0;
    pid_t child;

    fflush(NULL); // or both processes print what is buffered
    if (text != NULL && pipe(ends) != 0)
        abort();
    child = fork();
    if (child < 0)
        abort();
    if (child == 0) {
        if (text != NULL && dup2(ends[1], STDERR_FILENO) < 0)
            _exit(EXIT_FAILURE);
        state = run(arg);
        fflush(NULL);
        _exit(state); // without the exit handlers of the test
    }
    if (text != NULL) {
        close(ends[1]);
        read_all(ends[0], text, size);
        close(ends[0]);
    }
    while (waitpid(child, &state, 0) < 0) {
        if (errno != EINTR)
            abort();
    }
    return WIFEXITED(state) ? WEXITSTATUS(state) : -WTERMSIG(state);
}
