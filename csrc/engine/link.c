/* SPDX-License-Identifier: MIT
 *
 * link.c - what becomes of links that come and go: what is told, when the epoch stops, when a fresh link is opened.
 *
 * The idea: a loss stops the epoch only if an operation may need the link. All else is a suspicion, and the master
 * finds out whether the peer is gone or only the link.
 */
#include <stdio.h>

#include "engine/core.h"

static bool has_open_operation(const struct pccl__core *core) {
    for (struct list *node = core->open.next; node != &core->open; node = node->next)
        if (!LIST_ENTRY(node, struct pccl_operation, link)->is_fetch) return true;
    return false;
}

static const char broke[] = "the link to rank %u broke: %.400s";

static pccl_status loss_of(const struct pccl__channel *channel) {
    return channel->ended ? PCCL_PEER_DIED : PCCL_PEER_LOST;
}

/* `what`: a format of the rank, and of what is wrong with the link. */
static pccl_event suspicion(const struct pccl__core *core, uint32_t rank, pccl_status reason, const char *what) {
    const struct pccl__channel *channel = core->group.channels[rank];
    pccl_event event = {
        .kind = PCCL_EVENT_SUSPECT, .reason = reason, .epoch = core->group.epoch, .peer = channel->peer};
    snprintf(event.text, sizeof event.text, what, rank, channel->error.message);
    return event;
}

/* While no operation can need the link its loss is only a suspicion; a fresh channel takes its place. Without one, or
 * if nobody can be told, nothing can go on in this epoch. */
static void replace_channel(struct pccl__core *core, uint32_t rank) {
    pccl_event event = suspicion(core, rank, loss_of(core->group.channels[rank]), broke);
    pccl__core_retire(core, &core->group.channels[rank]);
    pccl_status status =
        core->transport->ops->open(core->transport, &core->group.members[rank], &core->group.channels[rank]);
    bool told = pccl__events_add(&core->events, &event);
    if (status == PCCL_OK)
        core->group.channels[rank]->ops->expect(core->group.channels[rank], core->group.epoch);
    else
        pccl__core_freeze(core, status, &event.peer, "no memory for a link in the place of a broken one");
    if (!told) pccl__core_freeze(core, PCCL_NO_MEMORY, &event.peer, event.text);
}

/* A member that cannot be dialled is perhaps gone, and perhaps dials us: the master can tell. Told once per channel and
 * epoch; TIMEOUT, since a link that never was has not broken. */
static void tell_doubt(struct pccl__core *core, uint32_t rank) {
    if (core->group.doubts_told[rank]) return;
    pccl_event event = suspicion(core, rank, PCCL_TIMEOUT, "no link to rank %u yet: %.400s");
    core->group.doubts_told[rank] = core->group.awaited[rank] = pccl__events_add(&core->events, &event);
}

/* Behind the failure that stopped the epoch. The link is made anew with the next epoch, so only the death of its other
 * end matters, which the master would wait for in vain. ABORTED makes it ask, and says nothing of the link. Where the
 * death is certain, it need not even ask. */
static void tell_also(struct pccl__core *core, uint32_t rank) {
    if (core->group.doubts_told[rank]) return;
    pccl_event event = suspicion(core, rank, core->group.channels[rank]->ended ? PCCL_PEER_DIED : PCCL_ABORTED, broke);
    core->group.doubts_told[rank] = pccl__events_add(&core->events, &event);
}

static void tell_linked(struct pccl__core *core, uint32_t rank) {
    pccl_event event = {.kind = PCCL_EVENT_LINKED,
                        .reason = PCCL_OK,
                        .epoch = core->group.epoch,
                        .peer = core->group.channels[rank]->peer};
    snprintf(event.text, sizeof event.text, "there is a link to rank %u", rank);
    if (pccl__events_add(&core->events, &event)) core->group.awaited[rank] = 0;
}

void pccl__core_dial(struct pccl__core *core, uint64_t epoch, const pccl_peer_id *peer) {
    uint32_t rank = pccl__group_rank_of(&core->group, peer);
    struct pccl__channel *channel = rank < core->group.size ? core->group.channels[rank] : NULL;
    if (epoch != core->group.epoch || !channel || channel->broken) return;
    core->group.awaited[rank] = 1;
    struct pccl__key key = {.epoch = epoch};
    struct pccl__stamp stamp = {{0}};
    channel->ops->post_notice(channel, PCCL__NOTICE_GREETING, &key, &stamp, NULL, 0);
}

static void note_link(struct pccl__core *core, struct pccl__channel *channel) {
    if (channel->heard_ns && !channel->noted_up) {
        pccl__record_note(core, PCCL_RECORD_LINK_UP, PCCL_OK, &channel->peer,
                          channel->medium ? channel->medium : channel->ops->name);
        channel->noted_up = true;
    }
    if (channel->broken && !channel->noted_down) {
        pccl__record_note(core, PCCL_RECORD_LINK_DOWN, loss_of(channel), &channel->peer, channel->error.message);
        channel->noted_down = true;
    }
}

static void check_link(struct pccl__core *core, uint32_t rank) {
    struct pccl__channel *channel = core->group.channels[rank];
    note_link(core, channel);
    if (!channel->broken) {
        if (channel->doubted) tell_doubt(core, rank);
        if (core->group.awaited[rank] && channel->heard_ns && !channel->doubted) tell_linked(core, rank);
        return;
    }
    pccl__core_fail_fetches(core, &channel->peer, channel->error.message);
    if (core->frozen) {
        tell_also(core, rank);
    } else if (!core->group.used[rank] || !has_open_operation(core)) {
        replace_channel(core, rank);
    } else {
        pccl_event told = suspicion(core, rank, loss_of(channel), broke); /* with the report */
        core->group.doubts_told[rank] = 1;
        pccl__core_freeze(core, told.reason, &told.peer, told.text);
    }
}

void pccl__core_check_links(struct pccl__core *core) {
    for (uint32_t rank = 0; rank < core->group.size; rank++)
        if (core->group.channels[rank]) check_link(core, rank);
}
