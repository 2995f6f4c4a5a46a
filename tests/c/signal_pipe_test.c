/* SPDX-License-Identifier: MIT
 *
 * signal_pipe_test.c - a signal reaches the pipe and the handler that was there before; taking it back restores that.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "pccl.h"

static volatile sig_atomic_t passed_on;

static void earlier(int number) { passed_on = number; }

/* The byte in the pipe; 0: none. */
static int take(int fd) {
    unsigned char byte;
    return read(fd, &byte, 1) == 1 ? byte : 0;
}

int main(void) {
    int fds[2];
    EXPECT(pipe(fds) == 0 && fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0 && fcntl(fds[1], F_SETFL, O_NONBLOCK) == 0,
           "pipe");
    pccl_error error;
    EXPECT(pccl_signal_pipe(SIGUSR1, fds[1], &error) == PCCL_OK, "no handler before");
    raise(SIGUSR1);
    EXPECT(take(fds[0]) == SIGUSR1 && take(fds[0]) == 0, "one byte");
    EXPECT(pccl_signal_pipe(0, -1, NULL) == PCCL_OK, "taken back");
    signal(SIGUSR2, earlier);
    EXPECT(pccl_signal_pipe(SIGUSR2, fds[1], &error) == PCCL_OK, "beside a handler");
    raise(SIGUSR2);
    EXPECT(take(fds[0]) == SIGUSR2 && passed_on == SIGUSR2, "both hear it");
    pid_t child = fork();
    if (child == 0) _exit(raise(SIGUSR2) == 0 && passed_on == SIGUSR2 ? 0 : 1);
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child hears it");
    EXPECT(take(fds[0]) == 0, "and writes nothing");
    for (int i = 0; i < 100000; i++) raise(SIGUSR2); /* nobody reads: it must not block */
    EXPECT(pccl_signal_pipe(0, -1, NULL) == PCCL_OK, "taken back");
    while (take(fds[0])) {
    }
    raise(SIGUSR2);
    EXPECT(take(fds[0]) == 0 && passed_on == SIGUSR2, "only the earlier one is left");
    EXPECT(pccl_signal_pipe(SIGKILL, fds[1], &error) == PCCL_INVALID, "no handler for that");
    FINISH();
}
