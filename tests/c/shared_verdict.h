/* SPDX-License-Identifier: MIT
 *
 * shared_verdict.h - the master's rule for the operations of a frozen epoch (pccl/protocol/verdict.py), for tests that
 * are their own master.
 */
#ifndef PCCL_TESTS_SHARED_VERDICT_H
#define PCCL_TESTS_SHARED_VERDICT_H

#include "pccl.h"

struct pccl__group;

enum { REPORT_LINES = 256 };

struct report {
    pccl_report_line lines[REPORT_LINES];
    size_t count;
    uint32_t rank;                   /* in the epoch that is frozen */
    const struct pccl__group *group; /* NULL will do where there are no subgroups */
};

/* What commits: each of `members` reports of those that take part has its data done or better, and nobody calls it
 * something else. Returns how many; EXPECTs that they and the reports' lines fit. */
uint32_t verdict(const struct report *reports, uint32_t members, pccl_operation_name *commits, uint32_t capacity);

#endif
