/* SPDX-License-Identifier: MIT
 *
 * allreduce.c - two processes sum a vector through pccl.h alone: no master, no Python.
 *
 *     cmake -S csrc -B build/lib && cmake --build build/lib
 *     cc -I csrc examples/allreduce.c build/lib/libpccl_core.a -lpthread -lm -o allreduce && ./allreduce
 *
 * Membership comes from outside the data plane. Here two forked processes know each other from the start: each opens
 * its engine on a port that the system chooses, tells the other which one it is, and installs the view of both.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pccl.h"

enum { SIZE = 2, COUNT = 1 << 20, LIMIT_MS = 10000 };

static int failed(const char *what, const pccl_error *error) {
    fprintf(stderr, "%s: %s: %s\n", what, pccl_status_string(error->status), error->message);
    return 1;
}

/* A member of this run: its id is its rank, all live on one host. */
static pccl_member member(uint32_t rank, uint16_t port) {
    pccl_member member = {.address = "127.0.0.1", .port = port, .host_id = 1};
    member.id.bytes[0] = (uint8_t)(rank + 1);
    return member;
}

/* Sums `values` of both processes in place, and checks every element. */
static int sum(pccl_engine *engine, uint32_t rank, float *values) {
    for (size_t i = 0; i < COUNT; i++) values[i] = (float)(i % 1000) * (float)(rank + 1);
    pccl_call call = {.collective = PCCL_ALL_REDUCE,
                      .dtype = PCCL_FLOAT32,
                      .op = PCCL_SUM,
                      .count = COUNT,
                      .input = values,
                      .output = values};
    pccl_operation *operation = NULL;
    pccl_info info;
    pccl_error error;
    if (pccl_run(engine, &call, LIMIT_MS, &operation, &info, &error) != PCCL_OK) return failed("pccl_run", &error);
    for (size_t i = 0; i < COUNT; i++) {
        if (values[i] != (float)(i % 1000) * 3) {
            fprintf(stderr, "element %zu is %g\n", i, (double)values[i]);
            return 1;
        }
    }
    printf("rank %u: %d elements summed over %u processes with algorithm %s\n", rank, COUNT, info.world_size,
           pccl_algorithm_name(info.algorithm));
    return 0;
}

/* One process: `other` is its end of a socket to the other one. */
static int run(uint32_t rank, int other) {
    pccl_options options = {.id = member(rank, 0).id, .listen_address = "127.0.0.1"};
    pccl_engine *engine;
    pccl_error error;
    if (pccl_engine_new(&options, &engine, &error) != PCCL_OK) return failed("pccl_engine_new", &error);

    uint16_t ports[SIZE];
    ports[rank] = pccl_engine_port(engine);
    float *values = malloc(COUNT * sizeof *values);
    int result = 1;
    if (values && write(other, &ports[rank], sizeof *ports) == sizeof *ports &&
        read(other, &ports[1 - rank], sizeof *ports) == sizeof *ports) {
        pccl_member members[SIZE] = {member(0, ports[0]), member(1, ports[1])};
        pccl_view view = {.epoch = 1, .size = SIZE, .rank = rank, .members = members};
        if (pccl_engine_install(engine, &view, &error) != PCCL_OK)
            result = failed("pccl_engine_install", &error);
        else
            result = sum(engine, rank, values);
    }
    /* Only when both are done: who leaves first would be a lost peer to the other. */
    if (write(other, "", 1) != 1 || read(other, &(char){0}, 1) != 1) result = 1;
    pccl_engine_free(engine);
    free(values);
    return result;
}

int main(void) {
    int sockets[SIZE];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return 1;
    pid_t child = fork();
    if (child < 0) return 1;
    uint32_t rank = child == 0 ? 1 : 0;
    close(sockets[1 - rank]);
    int result = run(rank, sockets[rank]);
    if (child == 0) return result;
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return 1;
    return result;
}
