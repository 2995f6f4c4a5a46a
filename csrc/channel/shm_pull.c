/* SPDX-License-Identifier: MIT
 *
 * shm_pull.c - see shm_pull.h.
 *
 * Marks and bytes. The owner marks first and changes the memory afterwards; the reader reads first and looks for the
 * mark afterwards: if it sees none, it has seen none of the changes. The kernel's reading is in the order of this
 * thread, and the fences keep that order on both sides.
 */
#include "channel/shm_pull.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LOOKS = 4 }; /* at the threads of a process that seems to have ended */

static _Atomic uint64_t *mark_of(struct shm_pull_shared *shared, uint64_t number) {
    return &shared->taken_back[number % SHM_PULL_SHOWN_MOST];
}

#ifdef __linux__
/* Reads `bytes` at `from`, if there are any, and then the proof. `thread`: any of the process. 0 or an errno: ESRCH if
 * that thread has ended, ESTALE if it is one of another program. */
static int read_proved(const struct shm_pull *pull, uint32_t thread, void *to, uint64_t from, size_t bytes) {
    struct shm_proof proof;
    struct iovec local[2] = {{to, bytes}, {&proof, sizeof proof}};
    struct iovec remote[2] = {{(void *)(uintptr_t)from, bytes}, {(void *)(uintptr_t)pull->proof_at, sizeof proof}};
    int first = bytes == 0;
    ssize_t got =
        process_vm_readv((pid_t)thread, local + first, 2 - (unsigned)first, remote + first, 2 - (unsigned)first, 0);
    if (got < 0) return errno;
    if ((size_t)got != bytes + sizeof proof) return EFAULT;
    return memcmp(&proof, &pull->proof, sizeof proof) == 0 ? 0 : ESTALE;
}
#else
static int read_proved(const struct shm_pull *pull, uint32_t thread, void *to, uint64_t from, size_t bytes) {
    (void)pull, (void)thread, (void)to, (void)from, (void)bytes;
    return ENOSYS;
}
#endif

static int prove(const struct shm_pull *pull, uint32_t thread) { return read_proved(pull, thread, NULL, 0, 0); }

void pccl__shm_pull_show(struct shm_pull_shared *mine, const struct shm_proof *proof, const struct pccl__arena *arena) {
    mine->arena_fd = arena ? (uint32_t)arena->fd : 0;
    mine->arena_at = arena ? (uintptr_t)arena->at : 0;
    mine->proof = *proof;
    mine->proof_at = (uintptr_t)proof;
    mine->process = (uint32_t)getpid();
}

/* All links to a process see the same arena. */
static bool see(struct pccl__arena_view *view, const struct shm_pull_shared *theirs, const struct shm_proof *proof) {
    if (!view || theirs->process == 0 || theirs->arena_at == 0) return false;
    if (view->at) return view->origin == theirs->arena_at;
    return pccl__arena_view_open(view, theirs->process, theirs->arena_fd, theirs->arena_at, proof->bytes);
}

void pccl__shm_pull_open(struct shm_pull *pull, struct shm_pull_shared *mine, struct shm_pull_shared *theirs,
                         const struct pccl__arena *arena, struct pccl__arena_view *view) {
    *pull = (struct shm_pull){mine, theirs, theirs->process, theirs->proof, theirs->proof_at, arena, NULL};
    if (pull->process != 0 && prove(pull, pull->process) != 0) pull->process = 0;
    if (see(view, theirs, &pull->proof)) pull->view = view;
    atomic_store(&mine->maps, pull->view != NULL);
    atomic_store(&mine->able, pull->process != 0);
}

void pccl__shm_pull_close(struct shm_pull *pull) {
    if (pull->mine) atomic_store(&pull->mine->closed, 1);
    atomic_thread_fence(memory_order_seq_cst);
    *pull = (struct shm_pull){0};
}

bool pccl__shm_pull_possible(const struct shm_pull *pull) {
    return pull->mine && pull->mine->process != 0 && atomic_load_explicit(&pull->theirs->able, memory_order_relaxed);
}

bool pccl__shm_pull_maps(const struct shm_pull *pull) {
    return pull->arena && atomic_load_explicit(&pull->theirs->maps, memory_order_relaxed);
}

bool pccl__shm_pull_mapped(const struct shm_pull *pull, const void *memory) {
    return pccl__shm_pull_maps(pull) && pccl__arena_holds(pull->arena, memory);
}

void pccl__shm_pull_take_back(struct shm_pull *pull, uint64_t number) {
    if (!pull->mine) return;
    atomic_store(mark_of(pull->mine, number), number);
    atomic_thread_fence(memory_order_seq_cst);
}

static bool taken_back(const struct shm_pull *pull, uint64_t number) {
    return atomic_load(mark_of(pull->theirs, number)) == number;
}

int pccl__shm_pull_read(const struct shm_pull *pull, uint64_t number, void *to, uint64_t from, size_t bytes) {
    if (pull->process == 0 && !pull->view) return EPROTO;
    /* After a death much of what was shown is taken back already: who copied it all would be late to hear why. */
    if (taken_back(pull, number)) return ECANCELED;
    const void *mapped = pull->view ? pccl__arena_view_of(pull->view, from, bytes) : NULL;
    int error = 0;
    if (mapped)
        memcpy(to, mapped, bytes);
    else
        error = read_proved(pull, pull->process, to, from, bytes);
    atomic_thread_fence(memory_order_seq_cst);
    if (taken_back(pull, number)) return ECANCELED;
    return atomic_load(&pull->theirs->closed) ? ECONNRESET : error;
}

/* What a pass over a process' threads found. */
struct threads {
    bool listed, ended; /* all of them have ended; else one lives, or the list may lack one */
    uint64_t count, sum;
};

static struct threads look_through(const struct shm_pull *pull) {
    struct threads found = {.ended = true};
    struct stat status;
    char path[32];
    snprintf(path, sizeof path, "/proc/%u/task", (unsigned)pull->process);
    DIR *directory = opendir(path);
    if (!directory) return found;
    found.listed = true;
    errno = 0;
    for (const struct dirent *entry; found.ended && (entry = readdir(directory)); errno = 0) {
        unsigned long thread = strtoul(entry->d_name, NULL, 10);
        if (thread == 0) continue; /* "." and ".." */
        found.ended = prove(pull, (uint32_t)thread) == ESRCH;
        found.count++;
        found.sum += thread;
    }
    bool whole = errno == 0 && fstat(dirfd(directory), &status) == 0 && status.st_nlink == found.count + 2;
    found.ended = found.ended && whole;
    closedir(directory);
    return found;
}

/* The number is that of the first thread, which may end before the others do: a process lives as long as one of its
 * threads has memory. A list of threads is no picture of one moment: one may be born and its parent end meanwhile. So
 * two in a row must be the same. Where threads are not listed, only a number that nobody has any more is proof enough.
 */
bool pccl__shm_pull_ended(const struct shm_pull *pull) {
    if (pull->process == 0 || prove(pull, pull->process) != ESRCH) return false;
    struct threads before = {0};
    for (int pass = 0; pass < LOOKS; pass++) {
        struct threads now = look_through(pull);
        if (!now.listed) return kill((pid_t)pull->process, 0) < 0 && errno == ESRCH;
        if (!now.ended && pass > 0) return false;
        if (now.ended && before.ended && now.count == before.count && now.sum == before.sum) return true;
        before = now;
    }
    return false;
}
