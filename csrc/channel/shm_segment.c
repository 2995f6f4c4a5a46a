/* SPDX-License-Identifier: MIT
 *
 * shm_segment.c - see shm_segment.h. A head of one page, the shared parts of two rings and of pulling
 * both ways in it, then the bytes of the rings.
 */
#include "channel/shm_segment.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"

static const struct shm_segment none = {.fd = -1};

#ifdef __linux__

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

enum { MAGIC = 0x4d534350 /* "PCSM" */, LAYOUT = 3, HEAD_BYTES = 4096 };

struct head {
    uint32_t magic, layout;
    uint64_t ring_bytes;
    struct shm_token token;
    _Atomic uint32_t attached;
    struct shm_ring_shared rings[2]; /* [0]: from the maker */
    struct shm_pull_shared pulls[2]; /* [0]: the maker's */
};
_Static_assert(sizeof(struct head) <= HEAD_BYTES, "the head fits its page");

static int fail(struct shm_segment *segment, int error) {
    pccl__shm_segment_close(segment);
    return error;
}

static int map(struct shm_segment *segment, int fd) {
    void *memory = mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (memory == MAP_FAILED) return errno;
    segment->memory = memory;
    /* A forked child must not keep the pages, let alone write to them. */
    return madvise(memory, segment->bytes, MADV_DONTFORK) == 0 ? 0 : errno;
}

int pccl__shm_segment_make(struct shm_segment *segment, const struct shm_token *token, uint64_t ring_bytes) {
    CHECK(ring_bytes >= SHM_RING_LEAST && ring_bytes <= SHM_SEGMENT_RING_MOST && !(ring_bytes & (ring_bytes - 1)));
    *segment = none;
    segment->ring_bytes = ring_bytes;
    segment->bytes = HEAD_BYTES + 2 * ring_bytes;
    segment->fd = memfd_create("pccl", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (segment->fd < 0) return fail(segment, errno);
    if (ftruncate(segment->fd, (off_t)segment->bytes) < 0) return fail(segment, errno);
    while (fallocate(segment->fd, 0, 0, (off_t)segment->bytes) < 0)
        if (errno != EINTR) return fail(segment, errno);
    if (fcntl(segment->fd, F_ADD_SEALS, SEALS) < 0) return fail(segment, errno);
    int error = map(segment, segment->fd);
    if (error) return fail(segment, error);
    struct head *head = segment->memory;
    head->layout = LAYOUT;
    head->ring_bytes = ring_bytes;
    head->token = *token;
    pccl__shm_ring_sleep(&head->rings[1].reader_sleeps); /* the opener's first bytes ring */
    head->magic = MAGIC;
    return 0;
}

/* Looks before it opens: opening whatever else has the number could have effects. */
static int open_other(uint32_t pid, uint32_t fd) {
    static const char name[] = "/memfd:pccl (deleted)";
    char path[64], target[sizeof name];
    snprintf(path, sizeof path, "/proc/%u/fd/%u", pid, fd);
    ssize_t length = readlink(path, target, sizeof target);
    if (length < 0) return -1;
    if (length != (ssize_t)sizeof name - 1 || memcmp(target, name, sizeof name - 1) != 0) {
        errno = EPERM;
        return -1;
    }
    return open(path, O_RDWR | O_CLOEXEC);
}

/* Is it as its maker should have made it? Sizes are compared with what is mapped, so nothing lies outside. */
static bool sound(const struct shm_segment *segment, const struct shm_token *token) {
    const struct head *head = segment->memory;
    uint64_t ring_bytes = segment->ring_bytes;
    return head->magic == MAGIC && head->layout == LAYOUT && head->ring_bytes == ring_bytes &&
           memcmp(&head->token, token, sizeof *token) == 0 && !atomic_load(&head->attached);
}

static int map_other(struct shm_segment *segment, const struct shm_token *token, int fd) {
    struct stat about;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || fstat(fd, &about) < 0) return errno;
    if ((seals & SEALS) != SEALS || about.st_size < HEAD_BYTES + 2 * SHM_RING_LEAST) return EPERM;
    segment->bytes = (size_t)about.st_size;
    segment->ring_bytes = (segment->bytes - HEAD_BYTES) / 2;
    if (segment->ring_bytes > SHM_SEGMENT_RING_MOST || (segment->ring_bytes & (segment->ring_bytes - 1))) return EPERM;
    int error = map(segment, fd);
    return error ? error : sound(segment, token) ? 0 : EPERM;
}

int pccl__shm_segment_open(struct shm_segment *segment, const struct shm_token *token, uint32_t pid, uint32_t fd) {
    *segment = none;
    int other = open_other(pid, fd);
    if (other < 0) return errno;
    int error = map_other(segment, token, other);
    close(other);
    return error ? fail(segment, error) : 0;
}

void pccl__shm_segment_rings(const struct shm_segment *segment, int end, struct shm_ring *out, struct shm_ring *in) {
    struct head *head = segment->memory;
    uint8_t *bytes = (uint8_t *)segment->memory + HEAD_BYTES;
    struct shm_ring *rings[2] = {end == 0 ? out : in, end == 0 ? in : out};
    for (int i = 0; i < 2; i++)
        pccl__shm_ring_init(rings[i], &head->rings[i], bytes + (size_t)i * segment->ring_bytes, segment->ring_bytes);
}

void pccl__shm_segment_pulls(const struct shm_segment *segment, int end, struct shm_pull_shared **mine,
                             struct shm_pull_shared **theirs) {
    struct head *head = segment->memory;
    *mine = &head->pulls[end];
    *theirs = &head->pulls[!end];
}

void pccl__shm_segment_attach(struct shm_segment *segment) {
    atomic_store(&((struct head *)segment->memory)->attached, 1);
}

bool pccl__shm_segment_attached(const struct shm_segment *segment) {
    return atomic_load(&((const struct head *)segment->memory)->attached) != 0;
}

void pccl__shm_segment_forget(struct shm_segment *segment) {
    if (segment->fd >= 0) close(segment->fd);
    segment->fd = -1;
}

void pccl__shm_segment_close(struct shm_segment *segment) {
    if (segment->memory) munmap(segment->memory, segment->bytes);
    pccl__shm_segment_forget(segment);
    *segment = none;
}

#else

int pccl__shm_segment_make(struct shm_segment *segment, const struct shm_token *token, uint64_t ring_bytes) {
    (void)token, (void)ring_bytes;
    *segment = none;
    return ENOSYS;
}

int pccl__shm_segment_open(struct shm_segment *segment, const struct shm_token *token, uint32_t pid, uint32_t fd) {
    (void)token, (void)pid, (void)fd;
    *segment = none;
    return ENOSYS;
}

void pccl__shm_segment_rings(const struct shm_segment *segment, int end, struct shm_ring *out, struct shm_ring *in) {
    (void)segment, (void)end, (void)out, (void)in;
    CHECK(!"no segment can exist here");
}

void pccl__shm_segment_pulls(const struct shm_segment *segment, int end, struct shm_pull_shared **mine,
                             struct shm_pull_shared **theirs) {
    (void)segment, (void)end, (void)mine, (void)theirs;
    CHECK(!"no segment can exist here");
}

void pccl__shm_segment_attach(struct shm_segment *segment) { (void)segment; }
bool pccl__shm_segment_attached(const struct shm_segment *segment) { return segment->memory != NULL; }
void pccl__shm_segment_forget(struct shm_segment *segment) { (void)segment; }
void pccl__shm_segment_close(struct shm_segment *segment) { *segment = none; }

#endif
