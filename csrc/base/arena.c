/* SPDX-License-Identifier: MIT */
#include "base/arena.h"

#include <string.h>

#include "base/bits.h"

#ifdef __linux__

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARENA_BYTES ((size_t)64 << 30)
#define SEALS       (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

enum { PAGE = 4096, LINE = 64 };

/* A limit on the size of files would kill us instead of failing. */
static int make_file(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur != RLIM_INFINITY) return -1;
    int fd = memfd_create("pccl-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && ftruncate(fd, (off_t)ARENA_BYTES) == 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

void pccl__arena_open(struct pccl__arena *arena) {
    *arena = (struct pccl__arena){.fd = make_file()};
    if (arena->fd < 0) return;
    void *at = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, arena->fd, 0);
    /* A forked child must not keep the pages, nor write to what others read. */
    if (at != MAP_FAILED && madvise(at, ARENA_BYTES, MADV_DONTFORK) == 0) {
        (void)madvise(at, ARENA_BYTES, MADV_DONTDUMP); /* a core of 64 GiB of nothing helps nobody */
#ifdef MADV_HUGEPAGE
        (void)madvise(at, ARENA_BYTES, MADV_HUGEPAGE); /* only a wish, that few systems grant to shared memory */
#endif
        arena->at = at;
        arena->bytes = ARENA_BYTES;
        arena->taken = PAGE; /* the proof's */
        return;
    }
    if (at != MAP_FAILED) munmap(at, ARENA_BYTES);
    close(arena->fd);
    *arena = (struct pccl__arena){.fd = -1};
}

void pccl__arena_close(struct pccl__arena *arena) {
    if (arena->at) {
        munmap(arena->at, arena->bytes);
        close(arena->fd);
    }
    *arena = (struct pccl__arena){.fd = -1};
}

void pccl__arena_drain(void *block, size_t bytes) {
    if (bytes > PAGE) (void)madvise((uint8_t *)block + PAGE, bytes - PAGE, MADV_REMOVE);
}

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
    if (about.st_size != (off_t)ARENA_BYTES) return NULL;
    void *at = mmap(NULL, ARENA_BYTES, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (at == MAP_FAILED) return NULL;
    (void)madvise(at, ARENA_BYTES, MADV_DONTFORK);
    (void)madvise(at, ARENA_BYTES, MADV_DONTDUMP);
    return at;
}

bool pccl__arena_view_open(struct pccl__arena_view *view, uint32_t pid, uint32_t fd, uint64_t origin,
                           const uint8_t proof[PCCL__ARENA_PROOF_BYTES]) {
    *view = (struct pccl__arena_view){0};
    int other = open_other(pid, fd);
    if (other < 0) return false;
    void *at = map_other(other);
    close(other);
    if (!at) return false;
    *view = (struct pccl__arena_view){.at = at, .bytes = ARENA_BYTES, .origin = origin};
    if (memcmp(at, proof, PCCL__ARENA_PROOF_BYTES) == 0) return true;
    pccl__arena_view_close(view);
    return false;
}

void pccl__arena_view_close(struct pccl__arena_view *view) {
    if (view->at) munmap((void *)(uintptr_t)view->at, view->bytes);
    *view = (struct pccl__arena_view){0};
}

#else

void pccl__arena_open(struct pccl__arena *arena) { *arena = (struct pccl__arena){.fd = -1}; }
void pccl__arena_close(struct pccl__arena *arena) { (void)arena; }
void pccl__arena_drain(void *block, size_t bytes) { (void)block, (void)bytes; }
bool pccl__arena_view_open(struct pccl__arena_view *view, uint32_t pid, uint32_t fd, uint64_t origin,
                           const uint8_t proof[PCCL__ARENA_PROOF_BYTES]) {
    (void)pid, (void)fd, (void)origin, (void)proof;
    *view = (struct pccl__arena_view){0};
    return false;
}
void pccl__arena_view_close(struct pccl__arena_view *view) { (void)view; }

#endif

void *pccl__arena_take(struct pccl__arena *arena, size_t bytes) {
    if (!arena->at || bytes > arena->bytes - arena->taken) return NULL;
    void *block = arena->at + arena->taken;
    arena->taken += bytes;
    return block;
}

bool pccl__arena_holds(const struct pccl__arena *arena, const void *block) {
    return arena && arena->at && (uintptr_t)block - (uintptr_t)arena->at < arena->bytes;
}

void pccl__arena_prove(struct pccl__arena *arena, const uint8_t proof[PCCL__ARENA_PROOF_BYTES]) {
    if (arena->at) memcpy(arena->at, proof, PCCL__ARENA_PROOF_BYTES);
}

const void *pccl__arena_view_of(const struct pccl__arena_view *view, uint64_t address, size_t bytes) {
    uint64_t offset = address - view->origin;
    if (!view->at || offset > view->bytes || bytes > view->bytes - offset) return NULL;
    return view->at + offset;
}
