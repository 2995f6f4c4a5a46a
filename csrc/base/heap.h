/* SPDX-License-Identifier: MIT
 *
 * heap.h - an intrusive pairing heap (Fredman, Sedgewick, Sleator, Tarjan 1986): what is due first, without memory of
 * its own. Adding is O(1); taking the first out, or any other, costs O(log n) amortised. What is due at the same time
 * comes in the order of adding. A zeroed node or heap is valid and empty.
 */
#ifndef PCCL_BASE_HEAP_H
#define PCCL_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_node {
    struct heap_node *child, *next;
    struct heap_node *previous; /* the left sibling; the parent's for a first child */
    uint64_t due_ns, order;
    bool inside;
};

struct heap {
    struct heap_node *first; /* due before all others; NULL: empty */
    uint64_t added;          /* so many so far */
};

static inline bool heap_earlier(const struct heap_node *a, const struct heap_node *b) {
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static inline struct heap_node *heap_meld(struct heap_node *a, struct heap_node *b) {
    if (!a || !b) return a ? a : b;
    if (heap_earlier(b, a)) return heap_meld(b, a);
    b->previous = a;
    b->next = a->child;
    if (a->child) a->child->previous = b;
    a->child = b;
    return a;
}

/* Makes one heap of siblings: pairs of neighbours first, then all pairs from the last one on. */
static inline struct heap_node *heap_meld_siblings(struct heap_node *sibling) {
    struct heap_node *pairs = NULL, *whole = NULL;
    while (sibling) {
        struct heap_node *a = sibling, *b = a->next;
        sibling = b ? b->next : NULL;
        a->next = NULL;
        if (b) b->next = NULL;
        struct heap_node *pair = heap_meld(a, b);
        pair->next = pairs;
        pairs = pair;
    }
    while (pairs) {
        struct heap_node *pair = pairs;
        pairs = pair->next;
        pair->next = NULL;
        whole = heap_meld(whole, pair);
    }
    if (whole) whole->previous = NULL;
    return whole;
}

/* The node must be outside. */
static inline void heap_add(struct heap *heap, struct heap_node *node, uint64_t due_ns) {
    *node = (struct heap_node){.due_ns = due_ns, .order = heap->added++, .inside = true};
    heap->first = heap_meld(heap->first, node);
}

/* Harmless for a node outside. */
static inline void heap_remove(struct heap *heap, struct heap_node *node) {
    if (!node->inside) return;
    node->inside = false;
    struct heap_node *children = heap_meld_siblings(node->child);
    if (heap->first == node) {
        heap->first = children;
        return;
    }
    if (node->previous->child == node)
        node->previous->child = node->next;
    else
        node->previous->next = node->next;
    if (node->next) node->next->previous = node->previous;
    heap->first = heap_meld(heap->first, children);
}

#endif
