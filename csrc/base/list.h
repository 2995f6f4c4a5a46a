/* SPDX-License-Identifier: MIT
 *
 * list.h - an intrusive doubly linked list. A node is in one list at most; an unlinked node points to itself.
 */
#ifndef PCCL_BASE_LIST_H
#define PCCL_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next, *previous;
};

#define LIST_ENTRY(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

static inline void list_init(struct list *list) { list->next = list->previous = list; }
static inline bool list_empty(const struct list *list) { return list->next == list; }

static inline void list_push_back(struct list *list, struct list *node) {
    node->previous = list->previous;
    node->next = list;
    list->previous->next = node;
    list->previous = node;
}

static inline void list_push_front(struct list *list, struct list *node) { list_push_back(list->next, node); }

/* Harmless for an unlinked node. */
static inline void list_remove(struct list *node) {
    node->previous->next = node->next;
    node->next->previous = node->previous;
    list_init(node);
}

/* NULL when empty. */
static inline struct list *list_pop_front(struct list *list) {
    if (list_empty(list)) return NULL;
    struct list *node = list->next;
    list_remove(node);
    return node;
}

/* Moves all nodes of `from` to the end of `to`. */
static inline void list_splice(struct list *to, struct list *from) {
    if (list_empty(from)) return;
    from->next->previous = to->previous;
    to->previous->next = from->next;
    from->previous->next = to;
    to->previous = from->previous;
    list_init(from);
}

#endif
