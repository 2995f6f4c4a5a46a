/* SPDX-License-Identifier: MIT
 *
 * shared_fake.h - the library that stands in for libibverbs, found as pccl finds it; a port and two connected streams
 * on it.
 */
#ifndef PCCL_TESTS_SHARED_FAKE_H
#define PCCL_TESTS_SHARED_FAKE_H

#include "channel/rdma_stream.h"
#include "fake_verbs.h"

struct fake_verbs *fake_find(void);
/* The port of its first device. */
void fake_port(struct rdma_port *port);
/* Both ends of a connection, with rings of these sizes. */
void fake_streams(struct rdma_port *port, struct rdma_stream ends[2], uint64_t ring_bytes, uint64_t other_bytes);
/* Nothing that was made on it is there any more, and it has no faults. */
void fake_expect_clean(void);

#endif
