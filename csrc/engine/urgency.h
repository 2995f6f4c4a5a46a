/* SPDX-License-Identifier: MIT
 *
 * urgency.h - what priorities mean to the engine: whose arrivals it works on first, and when queues have to be short.
 *
 * Must not know: links, operations but for their priority. Which send goes first is the channels' business
 * (channel/line.h); but nothing overtakes what a queue holds already. So the idea: as long as all that is under way is
 * equally urgent, queues may be as long as is fast; else they are kept short.
 */
#ifndef PCCL_ENGINE_URGENCY_H
#define PCCL_ENGINE_URGENCY_H

#include "channel/line.h"

struct pccl__urgency {
    uint32_t open[PCCL__LEVELS]; /* operations under way, by priority */
    uint32_t levels;             /* one bit for each of those that is not 0 */
    uint64_t calm_ns;            /* until when queues stay short */
};

/* An operation of this priority begins, or ends. A zeroed struct counts none. */
void pccl__urgency_begin(struct pccl__urgency *urgency, int priority);
void pccl__urgency_end(struct pccl__urgency *urgency, int priority);
/* Are queues to be short now? Also for a while after the last that differed: urgent operations often come one after the
 * other. */
bool pccl__urgency_hurry(struct pccl__urgency *urgency, uint64_t now_ns);
/* Transfers that have completed: the most urgent first, else in the order of their arrival. */
void pccl__urgency_sort(struct list *transfers);

#endif
