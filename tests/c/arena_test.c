/* SPDX-License-Identifier: MIT
 *
 * arena_test.c - what is written to an arena is seen by who has mapped it, also what is taken later; nobody else's
 * memory is taken for it, nothing outside of it is read, and nobody writes to it from elsewhere.
 */
#include "base/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { BLOCK = 1 << 20, MANY = 64 };

static const uint8_t proof[PCCL__ARENA_PROOF_BYTES] = {7, 1, 2, 3};

static struct pccl__arena opened(void) {
    struct pccl__arena arena;
    pccl__arena_open(&arena);
    EXPECT(arena.at, "cannot be tested here");
    pccl__arena_prove(&arena, proof);
    return arena;
}

static bool view(struct pccl__arena_view *view, const struct pccl__arena *arena) {
    return pccl__arena_view_open(view, (uint32_t)getpid(), (uint32_t)arena->fd, (uintptr_t)arena->at, proof);
}

static size_t memory_of(const struct pccl__arena *arena) {
    struct stat about;
    EXPECT(fstat(arena->fd, &about) == 0);
    return (size_t)about.st_blocks * 512;
}

static void test_what_is_written_is_seen(void) {
    struct pccl__arena arena = opened();
    struct pccl__arena_view seen;
    EXPECT(view(&seen, &arena));
    for (int i = 0; i < MANY; i++) {
        uint8_t *block = pccl__arena_take(&arena, BLOCK);
        EXPECT(block && (uintptr_t)block % 64 == 0 && pccl__arena_holds(&arena, block));
        memset(block, i, BLOCK);
        const uint8_t *there = pccl__arena_view_of(&seen, (uintptr_t)block, BLOCK);
        EXPECT(there && there != block && there[0] == i && there[BLOCK - 1] == i);
    }
    pccl__arena_view_close(&seen);
    EXPECT(!pccl__arena_view_of(&seen, (uintptr_t)arena.at, 1), "closed");
    pccl__arena_close(&arena);
    EXPECT(!pccl__arena_holds(&arena, proof) && !pccl__arena_take(&arena, 64), "closed");
}

/* Memory is in use from the first write on, and is not when a block was drained; what lay there is gone then. */
static void test_memory(void) {
    struct pccl__arena arena = opened();
    size_t before = memory_of(&arena);
    uint8_t *block = pccl__arena_take(&arena, BLOCK);
    EXPECT(memory_of(&arena) == before, "addresses cost nothing");
    memset(block, 1, BLOCK);
    EXPECT(memory_of(&arena) >= before + BLOCK);
    pccl__arena_drain(&arena, block, BLOCK);
    EXPECT(memory_of(&arena) <= before + (size_t)sysconf(_SC_PAGESIZE));
    EXPECT(block[0] == 1 && block[63] == 1 && block[64] == 0 && block[BLOCK - 1] == 0, "the first line stays");
    EXPECT(!pccl__arena_take(&arena, arena.bytes), "more than is left");
    pccl__arena_close(&arena);
}

static void test_bounds(void) {
    struct pccl__arena arena = opened();
    struct pccl__arena_view seen;
    EXPECT(view(&seen, &arena));
    uint64_t at = (uintptr_t)arena.at, end = at + arena.bytes;
    EXPECT(pccl__arena_view_of(&seen, at, 1) == seen.at && pccl__arena_view_of(&seen, end - 1, 1));
    EXPECT(!pccl__arena_view_of(&seen, at - 1, 1) && !pccl__arena_view_of(&seen, at - 1, 2), "before it");
    EXPECT(!pccl__arena_view_of(&seen, end, 1) && !pccl__arena_view_of(&seen, end - 1, 2), "behind it");
    EXPECT(!pccl__arena_view_of(&seen, at + 1, SIZE_MAX) && !pccl__arena_view_of(&seen, 0, 1), "all around");
    EXPECT(!pccl__arena_holds(&arena, arena.at - 1) && !pccl__arena_holds(&arena, arena.at + arena.bytes));
    EXPECT(!pccl__arena_holds(NULL, arena.at));
    pccl__arena_view_close(&seen);
    pccl__arena_close(&arena);
}

/* The numbers of a process and a descriptor prove nothing. */
static void test_something_else(void) {
    struct pccl__arena arena = opened();
    struct pccl__arena_view seen;
    uint64_t at = (uintptr_t)arena.at;
    uint32_t pid = (uint32_t)getpid();
    int other = memfd_create("pccl-arena", MFD_CLOEXEC), small = memfd_create("pccl-arena", MFD_ALLOW_SEALING);
    EXPECT(other >= 0 && small >= 0 && ftruncate(small, 4096) == 0 && fcntl(small, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    EXPECT(!pccl__arena_view_open(&seen, pid, 0, at, proof) && !seen.at, "a terminal, or what stands for one");
    EXPECT(!pccl__arena_view_open(&seen, pid, (uint32_t)other, at, proof) && !seen.at, "it may shrink");
    EXPECT(!pccl__arena_view_open(&seen, pid, (uint32_t)small, at, proof) && !seen.at, "another size");
    EXPECT(!pccl__arena_view_open(&seen, pid, 1 << 20, at, proof) && !seen.at, "no descriptor");
    uint8_t wrong[PCCL__ARENA_PROOF_BYTES] = {7, 1, 2, 4};
    EXPECT(!pccl__arena_view_open(&seen, pid, (uint32_t)arena.fd, at, wrong) && !seen.at, "another arena");
    EXPECT(view(&seen, &arena));
    close(other);
    close(small);
    pccl__arena_view_close(&seen);
    pccl__arena_close(&arena);
}

static int status_of(pid_t child) {
    int status;
    EXPECT(waitpid(child, &status, 0) == child);
    return status;
}

/* Another process reads what we write after it was born, and cannot write. It outlives neither nor needs us. */
static void test_other_process(void) {
    struct pccl__arena arena = opened();
    uint8_t *block = pccl__arena_take(&arena, BLOCK);
    int go[2], ready[2];
    EXPECT(pipe(go) == 0 && pipe(ready) == 0);
    pid_t owner = getpid(), child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        struct pccl__arena_view seen;
        char word;
        bool found = pccl__arena_view_open(&seen, (uint32_t)owner, (uint32_t)arena.fd, (uintptr_t)arena.at, proof);
        if (!found || write(ready[1], "", 1) != 1 || read(go[0], &word, 1) != 1) _exit(11);
        const uint8_t *there = pccl__arena_view_of(&seen, (uintptr_t)block, BLOCK);
        if (!there || there[0] != 9 || there[BLOCK - 1] != 9) _exit(12);
        *(volatile uint8_t *)(uintptr_t)there = 1;
        _exit(13);
    }
    char word;
    EXPECT(read(ready[0], &word, 1) == 1);
    memset(block, 9, BLOCK);
    EXPECT(write(go[1], "", 1) == 1);
    int status = status_of(child);
    bool stopped = WIFSIGNALED(status) ? WTERMSIG(status) == SIGSEGV : WEXITSTATUS(status) == 1; /* by a sanitizer */
    EXPECT(stopped, "%d", status);
    EXPECT(block[0] == 9);
    for (int i = 0; i < 2; i++) EXPECT(close(go[i]) == 0 && close(ready[i]) == 0);
    pccl__arena_close(&arena);
}

/* Small blocks may share a page: draining one leaves the others alone. */
static void test_neighbours(void) {
    struct pccl__arena arena = opened();
    uint8_t *block[3];
    for (int i = 0; i < 3; i++) memset(block[i] = pccl__arena_take(&arena, 16 * 1024 - 64), i + 1, 16 * 1024 - 64);
    pccl__arena_drain(&arena, block[1], 16 * 1024 - 64);
    for (int at = 0; at < 16 * 1024 - 64; at++)
        EXPECT(block[0][at] == 1 && block[2][at] == 3 && block[1][at] == (at < 64 ? 2 : 0), "%d", at);
    pccl__arena_close(&arena);
}

/* All memory of a process is locked, now and later: that is what is in use, and not the rest of the addresses. */
static void test_locked(void) {
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        struct pccl__arena arenas[2] = {opened(), {.fd = -1}};
        struct pccl__arena_view seen[2];
        if (!view(&seen[0], &arenas[0])) _exit(1);
        int locked = mlockall(MCL_CURRENT | MCL_FUTURE);
        if (locked != 0 && errno != EPERM && errno != ENOMEM) _exit(2);
        arenas[1] = opened();
        if (!view(&seen[1], &arenas[1])) _exit(3);
        for (int i = 0; i < 2; i++) {
            uint8_t *block = pccl__arena_take(&arenas[i], BLOCK);
            memset(block, i + 1, BLOCK);
            const uint8_t *there = pccl__arena_view_of(&seen[i], (uintptr_t)block, BLOCK);
            if (!there || there[BLOCK - 1] != i + 1 || memory_of(&arenas[i]) > (size_t)64 << 20) _exit(4);
            pccl__arena_drain(&arenas[i], block, BLOCK);
            if (there[BLOCK - 1] != 0) _exit(5);
        }
        _exit(0);
    }
    EXPECT(status_of(child) == 0);
}

/* A child that lives on does not hold the memory of one that has ended. */
static void test_forked(void) {
    struct pccl__arena arena = opened();
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        int fd = arena.fd;
        pccl__arena_forked(&arena);
        _exit(fcntl(fd, F_GETFD) >= 0 || pccl__arena_holds(&arena, proof) || pccl__arena_take(&arena, 64) ? 1 : 0);
    }
    EXPECT(status_of(child) == 0);
    pccl__arena_close(&arena);
}

/* Who may only write small files, or has few addresses, gets none, and is not killed for it; nor is any mapped there.
 */
static void test_limits(int resource) {
    struct pccl__arena before = opened();
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        struct rlimit limit = {(rlim_t)1 << 40, (rlim_t)1 << 40}; /* large, but it would be used up */
        if (setrlimit((__rlimit_resource_t)resource, &limit) != 0) _exit(1);
        struct pccl__arena arena;
        struct pccl__arena_view seen;
        pccl__arena_open(&arena);
        if (arena.at || arena.fd >= 0 || pccl__arena_take(&arena, 64)) _exit(2);
        bool seeing =
            pccl__arena_view_open(&seen, (uint32_t)getppid(), (uint32_t)before.fd, (uintptr_t)before.at, proof);
        _exit(seeing == (resource == RLIMIT_FSIZE) ? 0 : 3);
    }
    EXPECT(status_of(child) == 0);
    pccl__arena_close(&before);
}

/* Where addresses or files are limited, or memory is promised before it is used. */
static bool there_are_none(void) {
    struct pccl__arena arena;
    pccl__arena_open(&arena);
    bool none = !arena.at;
    pccl__arena_close(&arena);
    return none;
}

int main(void) {
    if (there_are_none()) return 77;
    test_what_is_written_is_seen();
    test_memory();
    test_bounds();
    test_something_else();
    test_other_process();
    test_neighbours();
    test_locked();
    test_forked();
    test_limits(RLIMIT_FSIZE);
    test_limits(RLIMIT_AS);
    FINISH();
}
