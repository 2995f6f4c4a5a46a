/* SPDX-License-Identifier: MIT */
#include "shared_verdict.h"

#include <stdbool.h>

#include "check.h"

/* Whether it may commit as far as this member knows. */
static bool agrees(const struct report *report, const pccl_report_line *open) {
    for (size_t i = 0; i < report->count; i++) {
        const pccl_report_line *line = &report->lines[i];
        if (line->tag != open->tag) continue;
        if (open->sequence < line->returned_below) return true;
        if (line->sequence != open->sequence || line->state < PCCL_DATA_DONE) continue;
        return line->state == PCCL_RETURNED || line->fingerprint == open->fingerprint;
    }
    return false;
}

static bool has(const pccl_operation_name *names, uint32_t count, const pccl_report_line *line) {
    while (count-- > 0)
        if (names[count].tag == line->tag && names[count].sequence == line->sequence) return true;
    return false;
}

uint32_t verdict(const struct report *reports, uint32_t members, pccl_operation_name *commits, uint32_t capacity) {
    uint32_t count = 0;
    for (uint32_t k = 0; k < members; k++) {
        EXPECT(reports[k].count <= REPORT_LINES, "%zu lines", reports[k].count);
        for (size_t i = 0; i < reports[k].count; i++) {
            const pccl_report_line *line = &reports[k].lines[i];
            bool all = line->state == PCCL_DATA_DONE && !has(commits, count, line);
            for (uint32_t m = 0; m < members; m++) all = all && agrees(&reports[m], line);
            EXPECT(!all || count < capacity, "more than %u commits", capacity);
            if (all) commits[count++] = (pccl_operation_name){line->tag, line->sequence};
        }
    }
    return count;
}
