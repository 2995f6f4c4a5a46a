/* SPDX-License-Identifier: MIT
 *
 * fake_verbs.h - what a test can ask of the library that stands in for libibverbs, and see of it.
 *
 * It moves bytes between queues of one process, in software, under one lock, when somebody polls. It is loaded as the
 * true one is, by its path (FAKE_VERBS). It believes nobody: keys, bounds and states are checked as a device would, and
 * whatever a device may do with late, partial and failed completions it does when told to.
 */
#ifndef PCCL_TESTS_FAKE_VERBS_H
#define PCCL_TESTS_FAKE_VERBS_H

#include <stddef.h>
#include <stdint.h>

/* Its devices: "fake0" (Ethernet, with the loopback addresses), "fake1" (its port is down), "fake2" (InfiniBand). */
enum { FAKE_DEVICES = 3 };

struct fake_verbs {
    /* Knobs; all zero is a device without faults. */
    int devices;              /* that there are; FAKE_DEVICES at the start */
    uint32_t requests_a_poll; /* executed per queue and poll; 0: all */
    uint32_t polls_between;   /* of so many polls only one executes anything */
    uint32_t partial;         /* of so many polls one finds nothing though there is something; 0: none */
    uint64_t fail_after;      /* so many requests succeed, the next one completes with `fail_status` */
    uint32_t fail_status;     /* 0: none fails */
    size_t lock_bytes;        /* that may be registered in all; 0: no limit */
    uint32_t refuse_pairs;    /* so many of the next pairs are refused */
    uint32_t refuse_connects; /* ... of the next connections */
    uint32_t inline_bytes;    /* the most that a pair may ask for; 0: 512 */
    /* What is there. */
    int contexts, domains, memories, channels, completions, pairs;
    size_t locked_bytes;
    /* What happened. */
    uint64_t requests, reads, read_bytes, written_bytes, not_ready, reported;
};

/* The library's only one. */
struct fake_verbs *fake_verbs(void);

#endif
