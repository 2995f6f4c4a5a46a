/* SPDX-License-Identifier: MIT
 *
 * settle.c - how an epoch ends: freeze, report, and the next view with its verdicts.
 */
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"
#include "engine/match.h"
#include "engine/operands.h"

static struct pccl_operation *operation_at(struct list *node) { return LIST_ENTRY(node, struct pccl_operation, link); }

/* Whom each operation waits for; for its error, since later nobody can tell any more. */
static void note_waits(struct pccl__core *core) {
    uint8_t *waits = pccl__pool_take(&core->pool, core->group.size);
    for (struct list *node = core->open.next; waits && node != &core->open; node = node->next) {
        if (operation_at(node)->is_fetch) continue;
        pccl__exec_waits_for(&core->exec, operation_at(node), waits);
        pccl__wait_note(core, operation_at(node), waits);
    }
    pccl__pool_put(&core->pool, waits, core->group.size);
}

static void cancel_each(struct pccl__core *core, struct list *operations) {
    for (struct list *node = operations->next; node != operations; node = node->next)
        if (!operation_at(node)->is_fetch) pccl__exec_cancel(&core->exec, operation_at(node), PCCL_ABORTED);
}

/* Those too that have ended and still owe others their last word. */
static void cancel_all(struct pccl__core *core) {
    cancel_each(core, &core->open);
    cancel_each(core, &core->leaving);
}

enum { RESTORE_BYTES = 1024 * 1024 };

/* What an ABORT says: the suspect's id, the rank that stopped first, its text. */
enum { ABORT_TEXT = 256, ABORT_HEAD = sizeof(pccl_peer_id) + 4 };

static void stop(struct pccl__core *core, pccl_status reason, const void *data, uint32_t bytes, const char *text) {
    pccl_event event = {.kind = PCCL_EVENT_FROZEN, .reason = reason, .epoch = core->group.epoch};
    memcpy(&event.peer, data, sizeof event.peer);
    core->frozen = core->restoring = true;
    pccl__record_note(core, PCCL_RECORD_FROZEN, reason, &event.peer, text);
    note_waits(core);
    cancel_all(core);
    snprintf(event.text, sizeof event.text, "%s", text);
    struct pccl__key key = {.epoch = core->group.epoch};
    struct pccl__stamp stamp = {{0}};
    pccl__core_notify(core, PCCL__NOTICE_ABORT, &key, &stamp, data, bytes);
    pccl__events_add(&core->events, &event);
}

void pccl__core_freeze(struct pccl__core *core, pccl_status reason, const pccl_peer_id *suspect, const char *text) {
    if (core->group.epoch == 0 || core->frozen) return;
    uint8_t data[ABORT_HEAD + ABORT_TEXT] = {0};
    size_t said = min_u64(strlen(text), ABORT_TEXT);
    if (suspect) memcpy(data, suspect, sizeof *suspect);
    put_u32(data + sizeof *suspect, core->group.rank);
    memcpy(data + ABORT_HEAD, text, said);
    stop(core, reason, data, (uint32_t)(ABORT_HEAD + said), text);
}

void pccl__core_abort_notice(struct pccl__core *core, const struct pccl__notice *notice) {
    if (notice->key.epoch > core->group.epoch) core->early_abort = max_u64(core->early_abort, notice->key.epoch);
    if (notice->key.epoch != core->group.epoch || core->frozen || notice->bytes < ABORT_HEAD) return;
    char text[PCCL_MESSAGE_BYTES];
    snprintf(text, sizeof text, "rank %u stopped: %.*s", get_u32(notice->data + sizeof(pccl_peer_id)),
             (int)(notice->bytes - ABORT_HEAD), (const char *)notice->data + ABORT_HEAD);
    stop(core, PCCL_ABORTED, notice->data, notice->bytes, text);
}

/* No verdict can commit what is in its data phase when the epoch stops. So its input comes back while the verdict is
 * on its way, and little by little: nothing that is heard meanwhile has to wait. */
bool pccl__core_restore(struct pccl__core *core) {
    for (struct list *node = core->open.next; core->frozen && node != &core->open; node = node->next) {
        struct pccl_operation *op = operation_at(node);
        if (!op->is_fetch && op->state == PCCL__DATA && pccl__operands_restore(op, RESTORE_BYTES) > 0) return true;
    }
    return false;
}

pccl_status pccl__core_report(const struct pccl__core *core, uint64_t epoch, pccl_report_line *lines, size_t capacity,
                              size_t *count) {
    if (!core->frozen || epoch != core->group.epoch) return PCCL_INVALID;
    *count = pccl__tags_report(&core->tags, lines, capacity);
    return PCCL_OK;
}

int pccl__core_has_started(const struct pccl__core *core, uint64_t epoch, pccl_operation_name name) {
    if (epoch != core->group.epoch || epoch == 0) return -1;
    struct pccl__tag *tag = pccl__tags_find(&core->tags, name.scope, name.tag);
    return tag && name.sequence < tag->next_sequence;
}

static void end_halted(struct pccl_operation *op, pccl_status status) {
    char what[PCCL__DESCRIPTOR_TEXT + PCCL__NAME_TEXT] = "a fetch of shared state";
    if (!op->is_fetch) pccl__operation_text(op, what, sizeof what);
    pccl__operation_end(op, status, "%s, ended: %s", what, op->core->halt_text);
}

void pccl__core_halt(struct pccl__core *core, pccl_status status, const char *text) {
    core->halted = status;
    pccl__record_note(core, PCCL_RECORD_HALTED, status, NULL, text ? text : pccl_status_string(status));
    snprintf(core->halt_text, sizeof core->halt_text, "%s", text ? text : pccl_status_string(status));
    while (!list_empty(&core->open)) end_halted(operation_at(core->open.next), status);
    while (!list_empty(&core->queued)) end_halted(operation_at(core->queued.next), status);
    core->deferred = (struct pccl__deferred){0};
}

/* ---------------------------------------------------------------- the next view */

static bool named(const pccl_view *view, pccl_operation_name name) {
    for (uint32_t i = 0; i < view->commits_count; i++)
        if (pccl__name_equal(view->commits[i], name)) return true;
    return false;
}

/* All transfers of the old epoch end here; channels promise to let go in the progress after a cancel. */
static void drain(struct pccl__core *core) {
    cancel_all(core);
    for (uint32_t rank = 0; rank < core->group.size; rank++)
        if (core->group.channels[rank]) pccl__core_run_channel(core, core->group.channels[rank]);
    for (struct list *node = core->open.next; node != &core->open; node = node->next)
        CHECK(operation_at(node)->is_fetch || operation_at(node)->borrowed == 0);
}

/* Ends the operations of the old epoch by their verdicts. Fetches go on. */
static void settle_operations(struct pccl__core *core, const pccl_view *view, pccl_status cause) {
    bool told = false; /* somebody will see that the deferred step failed */
    for (struct list *node = core->open.next; node != &core->open;) {
        struct pccl_operation *op = operation_at(node);
        node = node->next;
        if (op->is_fetch) continue;
        if (op->state == PCCL__FINISH && named(view, op->name)) {
            pccl__operands_publish(op);
            pccl__core_step_settled(core, op);
            pccl__operation_end(op, PCCL_OK, "success");
            continue;
        }
        told = told || pccl__is_stepwise(op);
        char what[PCCL__DESCRIPTOR_TEXT + PCCL__NAME_TEXT], whom[PCCL__WAIT_TEXT];
        pccl__operation_text(op, what, sizeof what);
        pccl__wait_text(core, op, whom, sizeof whom);
        pccl__operation_lost(op, core->group.epoch, cause, "%s aborted after %llu ms at rank %u%s%s%s: %s", what,
                             (unsigned long long)((core->now_ns - op->started_ns) / NS_PER_MS), core->group.rank,
                             whom[0] ? " (" : "", whom, whom[0] ? ")" : "", core->cause_text);
    }
    for (struct list *node = core->queued.next; node != &core->queued;) {
        struct pccl_operation *op = operation_at(node);
        node = node->next;
        if (!op->fated) continue;
        told = told || pccl__is_stepwise(op);
        char what[PCCL__DESCRIPTOR_TEXT + PCCL__NAME_TEXT];
        pccl__operation_text(op, what, sizeof what);
        pccl__operation_lost(op, core->group.epoch, cause, "%s, aborted: %s", what, core->cause_text);
    }
    if (core->deferred.open) core->deferred.broken = !told;
    if (told) core->deferred.open = false;
}

/* Closes what the next group did not take over: links to leavers, and broken ones. */
static void part_from_leavers(struct pccl__core *core, struct pccl__group *old) {
    for (uint32_t rank = 0; rank < old->size; rank++) {
        if (rank == old->rank) continue;
        if (pccl__group_rank_of(&core->group, &old->members[rank].id) == core->group.size)
            pccl__core_fail_fetches(core, &old->members[rank].id, "the peer left the group");
        pccl__core_retire(core, &old->channels[rank]);
    }
}

static void launch_queued(struct pccl__core *core) {
    struct list waiting;
    list_init(&waiting);
    list_splice(&waiting, &core->queued);
    struct list *node;
    while ((node = list_pop_front(&waiting))) {
        if (core->frozen)
            list_push_back(&core->queued, node);
        else
            pccl__core_launch(core, operation_at(node));
    }
}

pccl_status pccl__core_install(struct pccl__core *core, const pccl_view *view, uint64_t now_ns, pccl_error *error) {
    core->now_ns = now_ns;
    pccl_status status = pccl__view_check(view, core->newest_epoch, error);
    if (status != PCCL_OK) return status;
    struct pccl__group next = {0};
    status = pccl__group_next(&next, &core->group, view, core->transport, error);
    if (status != PCCL_OK) return status;
    core->frozen = core->group.epoch != 0; /* from here on nothing of the old epoch moves */
    drain(core);
    pccl__group_adopt(&next, &core->group);
    pccl__pool_share(&core->pool, next.whole->host_members > 1);
    pccl_status cause = view->cause == PCCL_OK ? PCCL_PEER_LOST : view->cause;
    snprintf(core->cause_text, sizeof core->cause_text, "%s",
             view->cause_text ? view->cause_text : pccl_status_string(cause));
    struct pccl__cause *ended = &core->causes[core->causes_next++ % PCCL__CAUSES_MAX];
    ended->epoch = core->group.epoch;
    snprintf(ended->text, sizeof ended->text, "%.*s", PCCL__CAUSE_TEXT - 1, core->cause_text);
    settle_operations(core, view, cause);
    pccl__core_renew_mismatches(core, next.since < next.epoch);
    pccl__wait_forget(core);
    pccl__tags_clear(&core->tags);
    struct pccl__group old = core->group;
    core->group = next;
    part_from_leavers(core, &old);
    pccl__group_clear(&old);
    core->newest_epoch = view->epoch;
    pccl__record_note(core, PCCL_RECORD_EPOCH, view->cause, NULL, core->cause_text);
    core->halted = PCCL_OK;
    core->frozen = false;
    for (uint32_t rank = 0; rank < core->group.size; rank++)
        if (core->group.channels[rank])
            core->group.channels[rank]->ops->expect(core->group.channels[rank], view->epoch);
    if (core->early_abort == view->epoch)
        pccl__core_freeze(core, PCCL_ABORTED, NULL, "another member stopped this epoch before it began here");
    launch_queued(core);
    pccl__match_renew(core);
    return PCCL_OK;
}
