/* SPDX-License-Identifier: MIT */
#include "base/arena.h"

#include <string.h>

#include "base/bits.h"

enum { LINE = 64 };

#ifdef __linux__

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARENA_BYTES ((size_t)16 << 30)
#define STEP_BYTES  ((size_t)16 << 20) /* that become accessible at a time */
#define SEALS       (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* ---------------------------------------------------------------- whether */

static bool unlimited(int resource) {
    struct rlimit limit;
    return getrlimit((__rlimit_resource_t)resource, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
}

static bool overcommits(void) {
    char mode = '2';
    int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return true;
    bool told = read(fd, &mode, 1) == 1;
    close(fd);
    return !told || mode != '2';
}

/* ---------------------------------------------------------------- mapping */

/* All of the file's addresses, of which none may be touched yet. NULL: it cannot be. */
static void *map(int fd) {
    void *at = mmap(NULL, ARENA_BYTES, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (at == MAP_FAILED) return NULL;
    /* A forked child must not keep the pages, nor write to what others read. */
    if (madvise(at, ARENA_BYTES, MADV_DONTFORK) < 0) {
        munmap(at, ARENA_BYTES);
        return NULL;
    }
    (void)madvise(at, ARENA_BYTES, MADV_DONTDUMP); /* a core of so much of nothing helps nobody */
#ifdef MADV_HUGEPAGE
    (void)madvise(at, ARENA_BYTES, MADV_HUGEPAGE); /* only a wish, that few systems grant to shared memory */
#endif
    return at;
}

/* Makes the first `needed` bytes accessible. */
static bool reach(uint8_t *at, size_t *open, size_t needed, int protection) {
    if (needed <= *open) return true;
    size_t wanted = div_ceil(needed, STEP_BYTES) * STEP_BYTES;
    if (mprotect(at, wanted, protection) < 0) return false;
    *open = wanted;
    return true;
}

/* ---------------------------------------------------------------- the owner's */

static int make_file(void) {
    if (!unlimited(RLIMIT_FSIZE) || !unlimited(RLIMIT_AS) || !overcommits()) return -1;
    int fd = memfd_create("pccl-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && ftruncate(fd, (off_t)ARENA_BYTES) == 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

void pccl__arena_open(struct pccl__arena *arena) {
    *arena = (struct pccl__arena){.fd = make_file()};
    if (arena->fd < 0) return;
    arena->at = map(arena->fd);
    arena->bytes = ARENA_BYTES;
    arena->taken = (size_t)sysconf(_SC_PAGESIZE); /* the proof's */
    if (!arena->at || !reach(arena->at, &arena->open, arena->taken, PROT_READ | PROT_WRITE)) pccl__arena_close(arena);
}

void pccl__arena_close(struct pccl__arena *arena) {
    if (arena->at) munmap(arena->at, arena->bytes);
    pccl__arena_forked(arena);
}

/* The mapping is not there. */
void pccl__arena_forked(struct pccl__arena *arena) {
    if (arena->bytes) close(arena->fd);
    *arena = (struct pccl__arena){.fd = -1};
}

void *pccl__arena_take(struct pccl__arena *arena, size_t bytes) {
    if (!arena->at || bytes > arena->bytes - arena->taken) return NULL;
    if (!reach(arena->at, &arena->open, arena->taken + bytes, PROT_READ | PROT_WRITE)) return NULL;
    void *block = arena->at + arena->taken;
    arena->taken += bytes;
    return block;
}

/* Of a page that is shared with other blocks the system clears this one's part. */
void pccl__arena_drain(const struct pccl__arena *arena, void *block, size_t bytes) {
    if (bytes <= LINE) return;
    off_t from = (off_t)((uint8_t *)block + LINE - arena->at);
    (void)fallocate(arena->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, (off_t)(bytes - LINE));
}

/* ---------------------------------------------------------------- a reader's */

static int open_other(uint32_t pid, uint32_t fd) {
    static const char name[] = "/memfd:pccl-arena (deleted)";
    char path[64], target[sizeof name];
    snprintf(path, sizeof path, "/proc/%u/fd/%u", pid, fd);
    ssize_t length = readlink(path, target, sizeof target);
    if (length != (ssize_t)sizeof name - 1 || memcmp(target, name, sizeof name - 1) != 0) return -1;
    return open(path, O_RDONLY | O_CLOEXEC);
}

static void *map_other(int fd) {
    struct stat about;
    if ((fcntl(fd, F_GET_SEALS) & SEALS) != SEALS || fstat(fd, &about) < 0) return NULL;
    return about.st_size == (off_t)ARENA_BYTES && unlimited(RLIMIT_AS) ? map(fd) : NULL;
}

bool pccl__arena_view_open(struct pccl__arena_view *view, uint32_t pid, uint32_t fd, uint64_t origin,
                           const uint8_t proof[PCCL__ARENA_PROOF_BYTES]) {
    *view = (struct pccl__arena_view){0};
    int other = open_other(pid, fd);
    if (other < 0) return false;
    *view = (struct pccl__arena_view){.at = map_other(other), .bytes = ARENA_BYTES, .origin = origin};
    close(other);
    const void *theirs = pccl__arena_view_of(view, origin, PCCL__ARENA_PROOF_BYTES);
    if (theirs && memcmp(theirs, proof, PCCL__ARENA_PROOF_BYTES) == 0) return true;
    pccl__arena_view_close(view);
    return false;
}

void pccl__arena_view_close(struct pccl__arena_view *view) {
    if (view->at) munmap(view->at, view->bytes);
    *view = (struct pccl__arena_view){0};
}

const void *pccl__arena_view_of(struct pccl__arena_view *view, uint64_t address, size_t bytes) {
    uint64_t offset = address - view->origin;
    if (!view->at || offset > view->bytes || bytes > view->bytes - offset) return NULL;
    return reach(view->at, &view->open, offset + bytes, PROT_READ) ? view->at + offset : NULL;
}

#else

void pccl__arena_open(struct pccl__arena *arena) { *arena = (struct pccl__arena){.fd = -1}; }
void pccl__arena_close(struct pccl__arena *arena) { (void)arena; }
void pccl__arena_forked(struct pccl__arena *arena) { (void)arena; }
void *pccl__arena_take(struct pccl__arena *arena, size_t bytes) {
    (void)arena, (void)bytes;
    return NULL;
}
void pccl__arena_drain(const struct pccl__arena *arena, void *block, size_t bytes) {
    (void)arena, (void)block, (void)bytes;
}
bool pccl__arena_view_open(struct pccl__arena_view *view, uint32_t pid, uint32_t fd, uint64_t origin,
                           const uint8_t proof[PCCL__ARENA_PROOF_BYTES]) {
    (void)pid, (void)fd, (void)origin, (void)proof;
    *view = (struct pccl__arena_view){0};
    return false;
}
void pccl__arena_view_close(struct pccl__arena_view *view) { (void)view; }
const void *pccl__arena_view_of(struct pccl__arena_view *view, uint64_t address, size_t bytes) {
    (void)view, (void)address, (void)bytes;
    return NULL;
}

#endif

bool pccl__arena_holds(const struct pccl__arena *arena, const void *block) {
    return arena && arena->at && (uintptr_t)block - (uintptr_t)arena->at < arena->bytes;
}

void pccl__arena_prove(struct pccl__arena *arena, const uint8_t proof[PCCL__ARENA_PROOF_BYTES]) {
    if (arena->at) memcpy(arena->at, proof, PCCL__ARENA_PROOF_BYTES);
}
