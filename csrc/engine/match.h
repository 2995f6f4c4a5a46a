/* SPDX-License-Identifier: MIT
 *
 * match.h - which send a receive gets.
 *
 * A receive from a given rank takes the next number of that pair and tag when it is called: its send has the same one.
 * A receive of any source cannot. It stays *unmatched*, without a name, until a send of its tag has come that no
 * receive is called for, and takes that pair's next number then. So must a receive from a given rank that was called
 * behind one of any source, lest it take what that one may get. Unmatched receives are served in the order of their
 * calls, which makes of all this the rule of MPI: a send goes to the receive that was called first of those that fit
 * it.
 *
 * Sends are known by their first frames, which the channels tell (PCCL__NOTICE_ARRIVED); tags.h counts them. Those that
 * come for an epoch which has not begun here yet are kept until it has.
 */
#ifndef PCCL_ENGINE_MATCH_H
#define PCCL_ENGINE_MATCH_H

#include "engine/core.h"

/* Must `operation`, just called, wait until a send has come? */
bool pccl__match_delays(const struct pccl__core *core, const struct pccl_operation *operation);
/* Takes one that must. It may begin at once, or end. */
void pccl__match_add(struct pccl__core *core, struct pccl_operation *operation);
/* Takes a notice of a send in an epoch to come, from `peer`. False: it is nothing of that kind. */
bool pccl__match_keeps(struct pccl__core *core, const pccl_peer_id *peer, struct pccl__notice *notice);
/* The send named by `key`, from `rank` to us, has come, or has been told of. */
void pccl__match_arrived(struct pccl__core *core, uint32_t rank, const struct pccl__key *key);
/* An unmatched receive of `tag` has ended, so those behind it may move up. */
void pccl__match_move_up(struct pccl__core *core, uint64_t tag);
/* An epoch has begun: what has come early for it counts from now on. */
void pccl__match_renew(struct pccl__core *core);
void pccl__match_forget(struct pccl__core *core);

#endif
