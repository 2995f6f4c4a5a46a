/* SPDX-License-Identifier: MIT
 *
 * shm_pull_test.c - what is pulled is right, or known to be nothing: taken back, closed, unmapped, of another process,
 * of one that was killed in the middle; and where the system forbids it, that is found out at the beginning. All of it
 * also with memory that the other side has mapped, for which nothing can be forbidden later.
 */
#include "channel/shm_pull.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/prng.h"
#include "check.h"

enum { WORDS = 64 * 1024, BYTES = WORDS * 8, KILLS = 12 };

/* What two sides share. Of a piece, all words are equal: its number. */
struct world {
    struct shm_pull_shared sides[2];
    _Atomic uint64_t number, memory; /* of the piece that the child shows now */
};

static struct shm_proof proofs[2] = {{{1, 2, 3}}, {{4, 5, 6}}};

static struct world *make(void) {
    struct world *world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT(world != MAP_FAILED);
    return world;
}

static void drop(struct world *world) { EXPECT(munmap(world, sizeof *world) == 0); }

/* Not open where addresses or files are limited: then nothing of it is tested. */
static struct pccl__arena arena_of(const struct shm_proof *proof) {
    struct pccl__arena arena;
    pccl__arena_open(&arena);
    pccl__arena_prove(&arena, proof->bytes);
    return arena;
}

static bool arenas_open(void) {
    struct pccl__arena arena = arena_of(&proofs[0]);
    bool open = arena.at;
    pccl__arena_close(&arena);
    return open;
}

/* Both sides in this process. */
static void open_both(struct world *world, struct shm_pull pulls[2]) {
    for (int i = 0; i < 2; i++) pccl__shm_pull_show(&world->sides[i], &proofs[i], NULL);
    for (int i = 0; i < 2; i++) pccl__shm_pull_open(&pulls[i], &world->sides[i], &world->sides[!i], NULL, NULL);
}

/* The same, and side 0 has an arena. */
static void open_mapped(struct world *world, struct shm_pull pulls[2], const struct pccl__arena *arena,
                        struct pccl__arena_view *view) {
    pccl__shm_pull_show(&world->sides[0], &proofs[0], arena);
    pccl__shm_pull_show(&world->sides[1], &proofs[1], NULL);
    pccl__shm_pull_open(&pulls[0], &world->sides[0], &world->sides[1], arena, NULL);
    EXPECT(!pccl__shm_pull_maps(&pulls[0]) && !pccl__shm_pull_mapped(&pulls[0], arena->at), "not yet");
    *view = (struct pccl__arena_view){0};
    for (int i = 0; i < 2; i++) /* the second link of two processes uses the same view */
        pccl__shm_pull_open(&pulls[1], &world->sides[1], &world->sides[0], NULL, view);
    EXPECT(pccl__shm_pull_maps(&pulls[0]) && pccl__shm_pull_mapped(&pulls[0], arena->at + 1));
    EXPECT(!pccl__shm_pull_mapped(&pulls[0], world) && !pccl__shm_pull_maps(&pulls[1]), "only that");
}

static void fill(uint64_t *memory, uint64_t number) {
    for (int i = 0; i < WORDS; i++) memory[i] = number;
}

static bool holds(const uint64_t *memory, uint64_t number) {
    for (int i = 0; i < WORDS; i++)
        if (memory[i] != number) return false;
    return true;
}

static void test_taking_back(bool mapped) {
    static uint64_t memory[WORDS], target[WORDS];
    struct pccl__arena arena = arena_of(&proofs[0]);
    struct pccl__arena_view view = {0};
    uint64_t *source = mapped ? pccl__arena_take(&arena, BYTES) : memory;
    struct world *world = make();
    struct shm_pull pulls[2] = {{0}};
    EXPECT(!pccl__shm_pull_possible(&pulls[0]), "not open");
    EXPECT(pccl__shm_pull_read(&pulls[0], 1, target, (uintptr_t)source, BYTES) == EPROTO);
    if (mapped)
        open_mapped(world, pulls, &arena, &view);
    else
        open_both(world, pulls);
    EXPECT(pccl__shm_pull_possible(&pulls[0]) && pccl__shm_pull_possible(&pulls[1]));
    uint64_t last = 3 * SHM_PULL_SHOWN_MOST;
    for (uint64_t number = 1; number <= last; number++) {
        bool taken_back = number % 3 == 0;
        fill(source, number);
        if (taken_back) pccl__shm_pull_take_back(&pulls[0], number);
        int error = pccl__shm_pull_read(&pulls[1], number, target, (uintptr_t)source, BYTES);
        EXPECT(error == (taken_back ? ECANCELED : 0), "%d", error);
        EXPECT(holds(target, taken_back ? number - 1 : number), "what was taken back before is not even copied");
    }
    EXPECT(pccl__shm_pull_read(&pulls[1], last + 1, target, (uintptr_t)source, 8) == 0);
    pccl__shm_pull_close(&pulls[0]);
    EXPECT(!pccl__shm_pull_possible(&pulls[0]));
    EXPECT(pccl__shm_pull_read(&pulls[1], last + 1, target, (uintptr_t)source, 8) == ECONNRESET, "nothing is believed");
    pccl__shm_pull_close(&pulls[0]);
    EXPECT(!pccl__shm_pull_maps(&pulls[0]));
    pccl__shm_pull_close(&pulls[1]);
    pccl__arena_view_close(&view);
    pccl__arena_close(&arena);
    drop(world);
}

/* Memory that is gone, wholly or from its second page on, is an error and not a wrong byte. */
static void test_unmapped(void) {
    static uint64_t target[WORDS];
    struct world *world = make();
    struct shm_pull pulls[2];
    open_both(world, pulls);
    uint8_t *source = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(source != MAP_FAILED && munmap(source + 4096, BYTES - 4096) == 0);
    EXPECT(pccl__shm_pull_read(&pulls[1], 1, target, (uintptr_t)source, 4096) == 0);
    EXPECT(pccl__shm_pull_read(&pulls[1], 1, target, (uintptr_t)source, BYTES) == EFAULT);
    EXPECT(munmap(source, 4096) == 0);
    EXPECT(pccl__shm_pull_read(&pulls[1], 1, target, (uintptr_t)source, 4096) == EFAULT);
    drop(world);
}

/* The number alone proves nothing: the process that has it now may be another one. */
static void test_other_process(void) {
    static uint64_t source[WORDS], target[WORDS];
    struct world *world = make();
    struct shm_pull pulls[2];
    open_both(world, pulls);
    struct shm_proof kept = proofs[0];
    proofs[0].bytes[SHM_PROOF_BYTES - 1] ^= 1; /* as it would be in another program */
    EXPECT(pccl__shm_pull_read(&pulls[1], 1, target, (uintptr_t)source, 8) == ESTALE);
    EXPECT(!pccl__shm_pull_ended(&pulls[1]), "and may be this one, with other memory");
    pccl__shm_pull_open(&pulls[1], &world->sides[1], &world->sides[0], NULL, NULL);
    EXPECT(!pccl__shm_pull_possible(&pulls[0]), "who was not proved is told so");
    proofs[0] = kept;
    world->sides[0].process = 0;
    pccl__shm_pull_open(&pulls[1], &world->sides[1], &world->sides[0], NULL, NULL);
    EXPECT(!pccl__shm_pull_possible(&pulls[0]), "who shows nothing is not read");
    drop(world);
}

/* The system forbids reading in this process, as a sandbox does. */
static void forbid(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void expect_success(pid_t child) {
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_forbidden(void) {
    static uint64_t source[WORDS], target[WORDS];
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        struct world *world = make();
        struct shm_pull pulls[2];
        open_both(world, pulls);
        forbid();
        EXPECT(pccl__shm_pull_read(&pulls[1], 1, target, (uintptr_t)source, BYTES) == EPERM, "later: an error");
        open_both(world, pulls);
        EXPECT(!pccl__shm_pull_possible(&pulls[0]) && !pccl__shm_pull_possible(&pulls[1]), "before: the other way");
        if (!arenas_open()) _exit(0);
        struct pccl__arena arena = arena_of(&proofs[0]);
        struct pccl__arena_view view;
        open_mapped(world, pulls, &arena, &view);
        EXPECT(!pccl__shm_pull_possible(&pulls[0]));
        fill(pccl__arena_take(&arena, BYTES), 5);
        uint64_t piece = (uintptr_t)arena.at + arena.taken - BYTES;
        EXPECT(pccl__shm_pull_read(&pulls[1], 1, target, piece, BYTES) == 0 && holds(target, 5),
               "needs nobody's leave");
        EXPECT(pccl__shm_pull_read(&pulls[1], 2, target, (uintptr_t)source, BYTES) == EPERM, "elsewhere it does");
        _exit(0);
    }
    expect_success(child);
}

/* Shows pieces in memory that it uses again at once: sometimes the reader is in time, sometimes it is taken back. */
static void show_for_ever(struct world *world, uint64_t seed, bool mapped) {
    static uint64_t own[2][WORDS];
    struct pccl__arena arena = arena_of(&proofs[0]);
    uint64_t *memory[2] = {own[0], own[1]};
    for (int i = 0; mapped && i < 2; i++) memory[i] = pccl__arena_take(&arena, BYTES);
    struct shm_pull pull;
    pccl__shm_pull_show(&world->sides[0], &proofs[0], &arena);
    pccl__shm_pull_open(&pull, &world->sides[0], &world->sides[1], &arena, NULL);
    for (uint64_t number = 1;; number++) {
        uint64_t *piece = memory[number % 2];
        fill(piece, number);
        atomic_store(&world->memory, (uintptr_t)piece);
        atomic_store(&world->number, number);
        for (uint32_t i = prng_below(&seed, 200000); i > 0; i--) atomic_thread_fence(memory_order_seq_cst);
        pccl__shm_pull_take_back(&pull, number);
        fill(piece, 0);
    }
}

/* Pulls from a process that takes back what it likes and is killed whenever it is: a word of another piece, or of none,
 * is never believed. */
static void test_killed(uint64_t seed, bool mapped) {
    static uint64_t target[WORDS];
    struct world *world = make();
    proofs[0].bytes[3] = (uint8_t)seed;
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) show_for_ever(world, seed, mapped);
    while (atomic_load(&world->number) == 0) continue;
    struct shm_pull pull;
    struct pccl__arena_view view = {0};
    pccl__shm_pull_show(&world->sides[1], &proofs[1], NULL);
    pccl__shm_pull_open(&pull, &world->sides[1], &world->sides[0], NULL, &view);
    uint32_t kill_at = 20 + prng_below(&seed, 100);
    for (uint32_t i = 0; i < 2 * kill_at; i++) {
        uint64_t number = atomic_load(&world->number), memory = atomic_load(&world->memory);
        if (i == kill_at) EXPECT(kill(child, SIGKILL) == 0);
        int error = pccl__shm_pull_read(&pull, number, target, memory, BYTES);
        /* A number that is older than the memory beside it was taken back before that was shown. */
        EXPECT(error != 0 || holds(target, number), "piece %" PRIu64, number);
        EXPECT(i >= kill_at || error == 0 || error == ECANCELED, "%s", strerror(error));
    }
    EXPECT(waitpid(child, NULL, 0) == child);
    int error = pccl__shm_pull_read(&pull, world->number + 1, target, world->memory, BYTES);
    if (mapped) /* the memory outlives its owner, and so does what was shown last */
        EXPECT(error == 0);
    else
        EXPECT(error != 0 && error != ECANCELED, "its number is free now");
    pccl__shm_pull_close(&pull);
    pccl__arena_view_close(&view);
    drop(world);
}

static void *wait_for_ever(void *world) {
    atomic_store(&((struct world *)world)->number, 3);
    while (pause()) continue;
    return NULL;
}

/* A process whose first thread has ended lives on in another one. */
static void live_on(struct world *world) {
    pthread_t other;
    pccl__shm_pull_show(&world->sides[0], &proofs[0], NULL);
    atomic_store(&world->number, 1);
    while (atomic_load(&world->number) != 2) continue;
    EXPECT(pthread_create(&other, NULL, wait_for_ever, world) == 0);
    pthread_exit(NULL);
}

static void test_ended(void) {
    struct world *world = make();
    struct shm_pull pull;
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) live_on(world);
    while (atomic_load(&world->number) == 0) continue;
    pccl__shm_pull_show(&world->sides[1], &proofs[1], NULL);
    pccl__shm_pull_open(&pull, &world->sides[1], &world->sides[0], NULL, NULL);
    EXPECT(!pccl__shm_pull_ended(&pull));
    atomic_store(&world->number, 2);
    while (atomic_load(&world->number) != 3 || pccl__shm_pull_read(&pull, 1, NULL, 0, 0) != ESRCH) continue;
    EXPECT(!pccl__shm_pull_ended(&pull), "only its first thread has");
    EXPECT(kill(child, SIGKILL) == 0);
    siginfo_t info;
    EXPECT(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0);
    EXPECT(pccl__shm_pull_ended(&pull), "its number is still its own");
    EXPECT(waitpid(child, NULL, 0) == child);
    EXPECT(pccl__shm_pull_ended(&pull), "its number is free");
    pccl__shm_pull_close(&pull);
    EXPECT(!pccl__shm_pull_ended(&pull), "nothing is known of it");
    drop(world);
}

int main(void) {
    bool open = arenas_open();
    for (int mapped = 0; mapped <= open; mapped++) test_taking_back(mapped);
    test_unmapped();
    test_other_process();
    test_forbidden();
    test_ended();
    for (uint64_t seed = 1; seed <= KILLS; seed++) test_killed(seed, open && seed % 2);
    FINISH();
}
