/* SPDX-License-Identifier: MIT */
#include "shared_machine.h"

#include <string.h>

#include "check.h"

#define NO_RECEIVE UINT32_MAX

struct machine machine;

/* ---------------------------------------------------------------- expressions */

static void forget_nodes(uint32_t size) {
    machine.nodes_count = 1;
    for (uint32_t p = 0; p < size; p++)
        machine.nodes[machine.nodes_count++] = (struct node){.positions = UINT64_C(1) << p};
}

/* The node for `left op right`; the same one for the same operands. Looked up from the newest: equal expressions are
 * built close to each other. */
static uint32_t combine(uint32_t left, uint32_t right) {
    for (uint32_t i = machine.nodes_count; --i > 0;)
        if (machine.nodes[i].left == left && machine.nodes[i].right == right && left) return i;
    EXPECT(machine.nodes_count < MACHINE_NODES);
    const struct node *a = &machine.nodes[left], *b = &machine.nodes[right];
    machine.nodes[machine.nodes_count] = (struct node){
        .left = left,
        .right = right,
        .positions = a->positions | b->positions,
        .encodings = (a->encodings > b->encodings ? a->encodings : b->encodings) + !right,
    };
    return machine.nodes_count++;
}

static bool is_encoded(uint32_t node) { return machine.nodes[node].left && !machine.nodes[node].right; }

static uint32_t encode(uint32_t position, uint32_t node) {
    if (!machine.codes || node == NOTHING || is_encoded(node)) return node;
    struct node *value = &machine.nodes[node];
    if (value->encoder && value->encoder != 1 + position) machine.repeated = true;
    value->encoder = 1 + position;
    return combine(node, NOTHING);
}

void machine_flatten(uint32_t node, uint32_t *order, uint32_t *count) {
    if (!machine.nodes[node].left) {
        EXPECT(*count < MACHINE_SIZES);
        order[(*count)++] = node - 1;
        return;
    }
    machine_flatten(machine.nodes[node].left, order, count);
    if (machine.nodes[node].right) machine_flatten(machine.nodes[node].right, order, count);
}

/* ---------------------------------------------------------------- the interpreter */

static bool has_value_at_start(uint32_t position, uint32_t chunk) {
    bool to_each = machine.planner->traits & PCCL__TO_EACH;
    switch (machine.planner->collective) {
    case PCCL_ALL_GATHER:
    case PCCL_GATHER:
        return chunk == position;
    case PCCL_BROADCAST:
    case PCCL_SCATTER:
        return position == machine.root;
    case PCCL_ALL_TO_ALL:
        return chunk / machine.size == position;
    case PCCL_SCAN:
        return !to_each || position <= chunk;
    case PCCL_EXSCAN:
        return !to_each || position < chunk;
    default:
        return true;
    }
}

/* In which order does each chunk receive? */
static void list_receives(uint32_t position) {
    const struct pccl__plan *plan = &machine.plans[position];
    for (uint32_t c = 0; c < plan->chunks; c++) machine.receive[position][c] = NO_RECEIVE;
    for (uint32_t i = plan->steps_count; i-- > 0;) {
        const struct pccl__step *step = &plan->steps[i];
        if (step->kind == PCCL__SEND) continue;
        machine.following[position][i] = machine.receive[position][step->chunk];
        machine.receive[position][step->chunk] = i;
    }
}

/* Sends go out with what was there before their round; what is encoded for them counts here, too. */
static void post_round(uint32_t position) {
    const struct pccl__plan *plan = &machine.plans[position];
    uint32_t first = machine.next[position];
    for (uint32_t i = first; i < plan->steps_count && plan->steps[i].round == plan->steps[first].round; i++) {
        uint32_t *value = &machine.values[position][plan->steps[i].chunk];
        if (plan->steps[i].kind == PCCL__SEND) *value = encode(position, *value);
    }
    memcpy(machine.sending[position], machine.values[position], plan->chunks * sizeof machine.values[position][0]);
}

void machine_load(const struct pccl__planner *planner, const struct pccl__shape *shape, uint32_t root) {
    uint32_t size = shape->size;
    machine.planner = planner;
    machine.shape = shape;
    machine.size = size;
    machine.root = root;
    machine.everyone = size == 64 ? UINT64_MAX : (UINT64_C(1) << size) - 1;
    machine.matched = 0;
    machine.repeated = false;
    memset(machine.next, 0, sizeof machine.next);
    forget_nodes(size);
    for (uint32_t p = 0; p < size; p++) {
        struct pccl__plan *plan = &machine.plans[p];
        EXPECT(planner->build(p, shape, root, plan) == PCCL_OK);
        EXPECT(pccl__plan_check(plan) == PCCL_OK);
        for (uint32_t i = 0; i < plan->steps_count; i++) EXPECT(pccl__shape_joins(shape, p, plan->steps[i].peer));
        EXPECT(plan->position == p && plan->size == size && plan->chunks >= 1 && plan->chunks <= MACHINE_CHUNKS);
        EXPECT(plan->steps_count <= MACHINE_STEPS);
        EXPECT(plan->chunks == machine.plans[0].chunks && plan->rounds == machine.plans[0].rounds);
        memset(machine.ended[p], 0, plan->steps_count * sizeof machine.ended[p][0]);
        list_receives(p);
        for (uint32_t c = 0; c < plan->chunks; c++) machine.values[p][c] = has_value_at_start(p, c) ? 1 + p : NOTHING;
        post_round(p);
    }
}

static bool posted(uint32_t position, uint32_t index) {
    const struct pccl__plan *plan = &machine.plans[position];
    return index < plan->steps_count && plan->steps[index].round == plan->steps[machine.next[position]].round;
}

/* The posted receive for a posted send; NO_RECEIVE when its position is not there yet, or has an earlier one for the
 * chunk. */
static uint32_t receive_for(uint32_t position, const struct pccl__step *send) {
    uint32_t i = machine.receive[send->peer][send->chunk];
    if (i == NO_RECEIVE || !posted(send->peer, i)) return NO_RECEIVE;
    const struct pccl__step *step = &machine.plans[send->peer].steps[i];
    return step->peer == position && step->round == send->round ? i : NO_RECEIVE;
}

static void apply(uint32_t position, const struct pccl__step *step, uint32_t received) {
    uint32_t *value = &machine.values[position][step->chunk];
    EXPECT(received != NOTHING, "sent before it had anything");
    const struct node *theirs = &machine.nodes[received], *own = &machine.nodes[*value];
    switch (step->kind) {
    case PCCL__COPY:
        if (machine.planner->collective == PCCL_ALL_REDUCE || machine.planner->collective == PCCL_REDUCE_SCATTER)
            EXPECT(theirs->positions == machine.everyone, "an incomplete value replaces a contribution");
        /* Signals add up: who tells, tells what it has heard. */
        *value = machine.planner->collective == PCCL_BARRIER ? combine(*value, received) : received;
        return;
    case PCCL__REDUCE_LEFT:
    case PCCL__REDUCE_RIGHT:
        EXPECT(*value != NOTHING && (theirs->positions & own->positions) == 0, "a contribution counted twice");
        *value = step->kind == PCCL__REDUCE_LEFT ? combine(received, *value) : combine(*value, received);
        if (machine.planner->collective == PCCL_SCAN || machine.planner->collective == PCCL_EXSCAN)
            EXPECT(!step->complete);
        else
            EXPECT(step->complete == (machine.nodes[*value].positions == machine.everyone), "complete is not right");
        if (step->complete && machine.planner->collective == PCCL_ALL_REDUCE) *value = encode(position, *value);
        return;
    default:
        EXPECT(false, "kind %u", step->kind);
    }
}

static bool match_round(uint32_t position) {
    bool moved = false;
    const struct pccl__plan *plan = &machine.plans[position];
    for (uint32_t i = machine.next[position]; posted(position, i); i++) {
        const struct pccl__step *send = &plan->steps[i];
        if (send->kind != PCCL__SEND || machine.ended[position][i]) continue;
        uint32_t receive = receive_for(position, send);
        if (receive == NO_RECEIVE) continue;
        machine.receive[send->peer][send->chunk] = machine.following[send->peer][receive];
        apply(send->peer, &machine.plans[send->peer].steps[receive], machine.sending[position][send->chunk]);
        machine.ended[position][i] = machine.ended[send->peer][receive] = true;
        machine.matched += 2;
        moved = true;
    }
    return moved;
}

/* Posts the next round once all of this one has ended. */
static bool advance(uint32_t position) {
    uint32_t i = machine.next[position];
    for (; posted(position, i); i++)
        if (!machine.ended[position][i]) return false;
    if (i == machine.next[position]) return false;
    machine.next[position] = i;
    post_round(position);
    return true;
}

void machine_run(void) {
    uint32_t steps = 0;
    for (uint32_t p = 0; p < machine.size; p++) steps += machine.plans[p].steps_count;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t p = 0; p < machine.size; p++) moved |= match_round(p);
        for (uint32_t p = 0; p < machine.size; p++) moved |= advance(p);
    }
    EXPECT(machine.matched == steps, "%s by %s among %u: deadlock, %u of %u steps",
           pccl_collective_name(machine.planner->collective), pccl_algorithm_name(machine.planner->algorithm),
           machine.size, machine.matched, steps);
}

void machine_free(void) {
    for (uint32_t p = 0; p < MACHINE_SIZES; p++) pccl__plan_free(&machine.plans[p]);
}
