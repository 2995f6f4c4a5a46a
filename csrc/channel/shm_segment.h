/* SPDX-License-Identifier: MIT
 *
 * shm_segment.h - memory that two processes of one host share: made by one, found by the other, named nowhere.
 *
 * Must not know: who talks to whom, or why. The idea: an anonymous file (memfd) that its maker describes by process and
 * descriptor number, and that the other opens through /proc. It has no name in /dev/shm, so the last unmapping frees it
 * however the processes end. Its size is sealed: nobody can cut it off under a mapping. Its pages are taken at once: a
 * host out of memory refuses here and not in the middle of a copy.
 *
 * Opening fails, and that is nothing unusual, where the two do not share a process table, a user or a /proc: the name
 * in the maker's head (a token) tells our segment from whatever else has that number there. Elsewhere than on Linux
 * both calls fail with ENOSYS.
 */
#ifndef PCCL_CHANNEL_SHM_SEGMENT_H
#define PCCL_CHANNEL_SHM_SEGMENT_H

#include "channel/shm_pull.h"
#include "channel/shm_ring.h"

enum { SHM_TOKEN_BYTES = 24, SHM_SEGMENT_RING_MOST = 64 * 1024 * 1024 };

struct shm_token {
    uint8_t bytes[SHM_TOKEN_BYTES];
};

struct shm_segment {
    void *memory; /* NULL: none */
    size_t bytes;
    uint64_t ring_bytes;
    int fd; /* the maker's until it is forgotten; else -1 */
};

/* Two empty rings of `ring_bytes` (a power of two) each. 0 or an errno. */
int pccl__shm_segment_make(struct shm_segment *segment, const struct shm_token *token, uint64_t ring_bytes);
/* Maps what the process `pid` has under its descriptor `fd`. 0 or an errno; EPERM also for what is not the segment. */
int pccl__shm_segment_open(struct shm_segment *segment, const struct shm_token *token, uint32_t pid, uint32_t fd);
/* The two rings, as the maker (end 0) or the opener (end 1) sees them. */
void pccl__shm_segment_rings(const struct shm_segment *segment, int end, struct shm_ring *out, struct shm_ring *in);
/* What either side says of its own memory, as the maker (end 0) or the opener (end 1) sees it. */
void pccl__shm_segment_pulls(const struct shm_segment *segment, int end, struct shm_pull_shared **mine,
                             struct shm_pull_shared **theirs);
/* The opener says that it has mapped it; the maker asks. */
void pccl__shm_segment_attach(struct shm_segment *segment);
bool pccl__shm_segment_attached(const struct shm_segment *segment);
/* The maker no longer needs to be found. */
void pccl__shm_segment_forget(struct shm_segment *segment);
/* Unmaps and closes. Harmless without a segment. */
void pccl__shm_segment_close(struct shm_segment *segment);

#endif
