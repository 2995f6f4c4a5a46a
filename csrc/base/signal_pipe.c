/* SPDX-License-Identifier: MIT
 *
 * signal_pipe.c - a signal becomes a byte in a pipe, whatever the process is doing at that moment.
 *
 * For diagnosis of processes that hang: an interpreter runs its own handlers only when its main thread comes back from
 * native code, which is just what a hanging process does not do. A handler may hardly do anything safely, so this one
 * writes the signal's number and passes the signal on to the handler that was there before, if there was one.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"

static volatile sig_atomic_t installed; /* the signal's number; 0: none */
static volatile sig_atomic_t pipe_fd = -1;
static volatile pid_t
    owner; /* a forked child shares the pipe, and what happens to it is none of the reader's business */
static struct sigaction before;

static void handle(int number, siginfo_t *info, void *context) {
    int saved = errno;
    unsigned char byte = (unsigned char)number;
    ssize_t ignored = getpid() == owner ? write(pipe_fd, &byte, 1) : 0; /* a full pipe says as much */
    (void)ignored;
    errno = saved;
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(number, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(number);
}

pccl_status pccl_signal_pipe(int number, int fd, pccl_error *error) {
    if (installed) {
        sigaction(installed, &before, NULL);
        installed = 0;
    }
    if (number == 0) return PCCL_OK;
    pipe_fd = fd;
    owner = getpid();
    struct sigaction ours = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    sigemptyset(&ours.sa_mask);
    if (sigaction(number, &ours, &before) != 0)
        return pccl__fail(error, PCCL_INVALID, "signal %d cannot be handled: %s", number, strerror(errno));
    installed = number;
    return PCCL_OK;
}
