/* SPDX-License-Identifier: MIT
 *
 * heap_test.c - against a plain array: random adds, removals of the first and of any other.
 */
#include "base/heap.h"

#include "base/prng.h"
#include "check.h"

enum { NODES = 200, STEPS = 20000 };

static struct heap_node node[NODES];

static uint64_t earliest(void) {
    uint64_t due = UINT64_MAX;
    for (int i = 0; i < NODES; i++)
        if (node[i].inside && node[i].due_ns < due) due = node[i].due_ns;
    return due;
}

static void against_an_array(uint64_t seed, uint32_t range) {
    struct heap heap = {NULL};
    uint64_t random = seed;
    for (int step = 0; step < STEPS; step++) {
        struct heap_node *any = &node[prng_below(&random, NODES)];
        if (prng_below(&random, 3) == 0 && heap.first)
            heap_remove(&heap, heap.first);
        else if (any->inside)
            heap_remove(&heap, any);
        else
            heap_add(&heap, any, prng_below(&random, range));
        EXPECT(heap.first ? heap.first->inside && heap.first->due_ns == earliest() : earliest() == UINT64_MAX,
               "seed %" PRIu64 " step %d", seed, step);
    }
    while (heap.first) {
        uint64_t due = heap.first->due_ns;
        heap_remove(&heap, heap.first);
        EXPECT(due <= earliest());
    }
    EXPECT(earliest() == UINT64_MAX, "all are out");
}

int main(void) {
    for (uint64_t seed = 1; seed <= 10; seed++) against_an_array(seed, seed % 2 ? 10 : 1000000);
    struct heap heap = {NULL};
    heap_remove(&heap, &node[0]);
    EXPECT(!heap.first, "removing what is outside does nothing");
    FINISH();
}
