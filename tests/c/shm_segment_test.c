/* SPDX-License-Identifier: MIT
 *
 * shm_segment_test.c - one process makes a segment, another finds it by numbers; what is not exactly that is refused,
 * and nothing stays behind: no descriptor, no mapping, none in a forked child, no name anywhere.
 */
#include "channel/shm_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "shared_tcp.h"

enum { RING_BYTES = 16 * 1024 };

static const struct shm_token token = {{1, 2, 3}};

/* How many mappings of segments this process has. */
static int count_mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    EXPECT(maps);
    char line[512];
    int count = 0;
    while (fgets(line, sizeof line, maps)) count += strstr(line, "/memfd:pccl") != NULL;
    fclose(maps);
    return count;
}

static void make(struct shm_segment *segment) {
    int error = pccl__shm_segment_make(segment, &token, RING_BYTES);
    EXPECT(error == 0, "%s", strerror(error));
}

static int open_it(struct shm_segment *opened, const struct shm_token *as, uint32_t fd) {
    return pccl__shm_segment_open(opened, as, (uint32_t)getpid(), fd);
}

static void expect_stream(struct shm_ring *out, struct shm_ring *in) {
    char text[16] = "through memory!", back[16] = "";
    struct iovec from = {text, sizeof text}, to = {back, sizeof back};
    EXPECT(pccl__shm_ring_write(out, &from, 1) == sizeof text);
    EXPECT(pccl__shm_ring_read(in, &to, 1) == sizeof back && strcmp(text, back) == 0);
}

static void test_meeting(void) {
    int descriptors = tcp_count_descriptors();
    struct shm_segment made, opened;
    make(&made);
    EXPECT(!pccl__shm_segment_attached(&made));
    EXPECT(open_it(&opened, &token, (uint32_t)made.fd) == 0 && opened.ring_bytes == RING_BYTES && opened.fd == -1);
    EXPECT(!pccl__shm_segment_attached(&made), "to look is not to agree");
    pccl__shm_segment_attach(&opened);
    EXPECT(pccl__shm_segment_attached(&made));
    struct shm_segment late;
    EXPECT(open_it(&late, &token, (uint32_t)made.fd) == EPERM && !late.memory, "a segment is for one");
    struct shm_ring there[2], here[2];
    pccl__shm_segment_rings(&made, 0, &there[0], &there[1]);
    pccl__shm_segment_rings(&opened, 1, &here[0], &here[1]);
    EXPECT(!pccl__shm_ring_must_wake(&there[0].shared->reader_sleeps));
    EXPECT(pccl__shm_ring_must_wake(&here[0].shared->reader_sleeps), "the maker waits for the opener's first bytes");
    expect_stream(&there[0], &here[1]);
    expect_stream(&here[0], &there[1]);
    pccl__shm_segment_forget(&made);
    pccl__shm_segment_close(&made);
    EXPECT(pccl__shm_ring_room(&here[0]) == RING_BYTES, "the memory lives as long as one of them");
    EXPECT(count_mappings() == 1);
    pccl__shm_segment_close(&opened);
    pccl__shm_segment_close(&opened);
    EXPECT(count_mappings() == 0 && tcp_count_descriptors() == descriptors);
}

/* A descriptor of this process that is called a segment and is none. */
static int fake(const char *name, unsigned seals, size_t bytes) {
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static void expect_refused(int fd) {
    struct shm_segment opened;
    EXPECT(open_it(&opened, &token, (uint32_t)fd) == EPERM && !opened.memory && opened.fd == -1);
    close(fd);
}

static void test_refusals(void) {
    int descriptors = tcp_count_descriptors();
    const unsigned seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    size_t bytes = 4096 + 2 * RING_BYTES;
    struct shm_segment made, opened;
    make(&made);
    struct shm_token other = token;
    other.bytes[SHM_TOKEN_BYTES - 1] ^= 1;
    EXPECT(open_it(&opened, &other, (uint32_t)made.fd) == EPERM && !opened.memory, "another connection's");
    EXPECT(ftruncate(made.fd, 0) < 0 && errno == EPERM, "nobody can cut it off under a mapping");
    pccl__shm_segment_close(&made);
    EXPECT(open_it(&opened, &token, 1000000) == ENOENT);
    EXPECT(pccl__shm_segment_open(&opened, &token, UINT32_MAX, 0) == ENOENT);
    expect_refused(open("/dev/null", O_RDWR | O_CLOEXEC));
    expect_refused(fake("something", seals, bytes));
    expect_refused(fake("pccl", F_SEAL_SHRINK | F_SEAL_SEAL, bytes)); /* may grow */
    expect_refused(fake("pccl", F_SEAL_GROW | F_SEAL_SEAL, bytes));   /* may be cut off */
    expect_refused(fake("pccl", seals, bytes));                       /* no head */
    expect_refused(fake("pccl", seals, bytes + 4096));                /* rings of no power of two */
    expect_refused(fake("pccl", seals, 0));
    EXPECT(count_mappings() == 0 && tcp_count_descriptors() == descriptors);
}

static void test_fork(void) {
    struct shm_segment made;
    make(&made);
    EXPECT(count_mappings() == 1);
    fflush(stdout);
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) _exit(count_mappings());
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    pccl__shm_segment_close(&made);
}

static void test_no_memory(void) {
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) { /* memfd_create itself is refused */
        for (int fd = 3; fd < 1024; fd++) close(fd);
        while (open("/dev/null", O_RDONLY) >= 0) continue;
        struct shm_segment made;
        _exit(pccl__shm_segment_make(&made, &token, RING_BYTES) == EMFILE && !made.memory ? 0 : 1);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
    test_meeting();
    test_refusals();
    test_fork();
    test_no_memory();
    FINISH();
}
