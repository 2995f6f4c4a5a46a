/* SPDX-License-Identifier: MIT */
#include "shared_verdict.h"

#include <stdbool.h>

#include "check.h"
#include "engine/group.h"

/* Whether it may commit as far as this member knows. */
static bool agrees(const struct report *report, const pccl_report_line *open) {
    for (size_t i = 0; i < report->count; i++) {
        const pccl_report_line *line = &report->lines[i];
        if (line->tag != open->tag || line->scope != open->scope) continue;
        if (open->sequence < line->returned_below) return true;
        if (line->sequence != open->sequence || line->state < PCCL_DATA_DONE) continue;
        return line->state == PCCL_RETURNED || line->fingerprint == open->fingerprint;
    }
    return false;
}

static pccl_operation_name name_of(const pccl_report_line *line) {
    return (pccl_operation_name){.tag = line->tag, .scope = line->scope, .sequence = line->sequence};
}

static bool has(const pccl_operation_name *names, uint32_t count, const pccl_report_line *line) {
    while (count-- > 0)
        if (pccl__name_equal(names[count], name_of(line))) return true;
    return false;
}

/* Of something between two, the one that receives must be there. `group` is that of who says `line`. */
static bool may_commit(const struct report *reports, uint32_t members, const struct pccl__group *group,
                       const pccl_report_line *line) {
    bool all = line->state == PCCL_DATA_DONE, received = !pccl__scope_is_pair(line->scope);
    for (uint32_t m = 0; m < members; m++) {
        if (!pccl__team_has(group, line->scope, reports[m].rank)) continue;
        received = received || reports[m].rank == pccl__scope_target(line->scope);
        all = all && agrees(&reports[m], line);
    }
    return all && received;
}

uint32_t verdict(const struct report *reports, uint32_t members, pccl_operation_name *commits, uint32_t capacity) {
    uint32_t count = 0;
    for (uint32_t k = 0; k < members; k++) {
        EXPECT(reports[k].count <= REPORT_LINES, "%zu lines", reports[k].count);
        for (size_t i = 0; i < reports[k].count; i++) {
            const pccl_report_line *line = &reports[k].lines[i];
            bool all = !has(commits, count, line) && may_commit(reports, members, reports[k].group, line);
            EXPECT(!all || count < capacity, "more than %u commits", capacity);
            if (all) commits[count++] = name_of(line);
        }
    }
    return count;
}
