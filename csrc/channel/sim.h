/* SPDX-License-Identifier: MIT
 *
 * sim.h - channels in memory, for tests: a network of peers in one thread, virtual time, faults from a seed.
 *
 * It is also the model of what a channel is: the executor's tests run over it, and it passes the same conformance suite
 * as the real transports.
 */
#ifndef PCCL_CHANNEL_SIM_H
#define PCCL_CHANNEL_SIM_H

#include "channel/channel.h"

struct pccl__sim_faults {
    uint32_t delay_us_max;    /* each frame waits 0..max of virtual time */
    uint32_t piece_bytes_max; /* 0: whole; else payloads are moved in pieces of 1..max bytes (short reads) */
    uint32_t reorder_percent; /* frames of different transfers may overtake (stripes do that) */
    uint32_t break_ppm;       /* chance per frame, in millionths, that the link breaks under it */
    uint32_t no_memory_ppm;   /* chance per post that it answers NO_MEMORY */
};

struct pccl__sim_network;
/* NULL, here and below: no memory. */
struct pccl__sim_network *pccl__sim_network_new(uint64_t seed, struct pccl__sim_faults faults);
/* After all channels and transports. */
void pccl__sim_network_free(struct pccl__sim_network *network);
/* The transport of one peer. Two channels meet when both sides have opened one for the other's id. */
struct pccl__transport *pccl__sim_transport_new(struct pccl__sim_network *network, pccl_peer_id id);
/* The peer vanishes: a random tail of what it sent is lost, then its links break on the other sides after a random
 * delay. It never runs again: its channels do nothing until they are closed, which they must be, with progress and free
 * as usual, before the memory that they borrow goes. */
void pccl__sim_kill(struct pccl__sim_network *network, pccl_peer_id id);
/* Breaks the one link between two living peers. */
void pccl__sim_cut(struct pccl__sim_network *network, pccl_peer_id a, pccl_peer_id b);
/* From now on no link between the two is made: one that is wanted is doubted, and breaks soon after. */
void pccl__sim_block(struct pccl__sim_network *network, pccl_peer_id a, pccl_peer_id b);
/* Frames that somebody wanted to send between blocked peers. */
uint64_t pccl__sim_blocked_frames(const struct pccl__sim_network *network);
/* Virtual time: when the next frame is due (NEVER_NS: none). The test advances its clock to it and runs the peers. */
uint64_t pccl__sim_next_ns(const struct pccl__sim_network *network);
uint64_t pccl__sim_now_ns(const struct pccl__sim_network *network);
void pccl__sim_advance(struct pccl__sim_network *network, uint64_t now_ns); /* marks the channels that got news ready */

#endif
