/* SPDX-License-Identifier: MIT */
#include "engine/choice.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/status.h"
#include "engine/coding.h"
#include "engine/prices.h"

/* What a planner must be able to do. Private uneven parts go straight where they can. */
static uint8_t needed(const struct pccl__team *team, const pccl_call *call, const struct pccl__layout *layout) {
    if (call->flags & PCCL_DETERMINISTIC) return PCCL__FIXED_ORDER;
    if (call->errors && pccl__reduces(call->collective)) return PCCL__ONE_EACH;
    bool straight = team->shape.kind == PCCL_SHAPE_FULL;
    return straight && layout->uneven && pccl__parts_are_private(layout->collective) ? PCCL__STRAIGHT : 0;
}

static uint64_t total_bytes(const pccl_call *call, const struct pccl__layout *layout) {
    return pccl__coding_bytes(call, pccl__layout_total(layout));
}

/* NULL: nobody was asked for, or it does not serve. */
static const struct pccl__planner *wanted(const struct pccl__team *team, const pccl_call *call, uint8_t traits) {
    const struct pccl__planner *planner = pccl__planner_find(call->collective, call->algorithm);
    return planner && pccl__planner_fits(planner, &team->shape, traits) ? planner : NULL;
}

/* A quantized sum should be encoded but twice, whatever the number of members: each contribution, and the whole. That
 * costs as many bytes as the ring. Not among hosts with several members, which would share their wires. NULL: not here.
 */
static const struct pccl__planner *encoding_twice(const struct pccl__team *team, const pccl_call *call) {
    bool coded = call->quantization.format != PCCL_EXACT;
    bool scatters = call->collective == PCCL_ALL_REDUCE || call->collective == PCCL_REDUCE_SCATTER;
    if (!coded || !scatters || (team->shape.hosts > 1 && team->shape.host_most > 1)) return NULL;
    const struct pccl__planner *planner = pccl__planner_find(call->collective, PCCL_DIRECT);
    return pccl__planner_fits(planner, &team->shape, 0) ? planner : NULL;
}

const struct pccl__planner *pccl__choice_make(const struct pccl__team *team, const pccl_call *call,
                                              const struct pccl__layout *layout) {
    if (!team->barrier) return NULL;
    uint8_t traits = needed(team, call, layout);
    const struct pccl__planner *planner = wanted(team, call, traits);
    if (!planner) planner = encoding_twice(team, call);
    return planner ? planner : pccl__planner_choose(&team->offers, call->collective, total_bytes(call, layout), traits);
}

const char *pccl__choice_missing(const struct pccl__team *team) {
    return team->barrier ? "no deterministic way around the links that are down: others have one"
                         : "some links are down, and those that operations use do not connect this subgroup";
}

/* ---------------------------------------------------------------- in words */

struct words {
    char *text;
    size_t bytes;
};

static void say(struct words words, const char *separator, const char *more) {
    size_t used = strlen(words.text);
    snprintf(words.text + used, words.bytes - used, "%s%s", separator, more);
}

/* How long a call takes in a format: links and arithmetic overlap, so the slower of them. Of a sum, everything is
 * encoded once, and decoded for adding and again at the end; of what only moves, decoded. */
static double format_ns(const struct pccl__team *team, pccl_call call, const struct pccl__layout *layout,
                        double coding) {
    const struct pccl__planner *planner = pccl__choice_make(team, &call, layout);
    if (!planner) return 0;
    double link = pccl__planner_cost_ns(&team->offers, planner, &team->shape, total_bytes(&call, layout));
    if (call.quantization.format == PCCL_EXACT) return link;
    double passes = pccl__reduces(call.collective) ? 1.5 : 0.5;
    double arithmetic = passes * (double)pccl__layout_total(layout) * sizeof(float) / coding;
    return arithmetic > link ? arithmetic : link;
}

static void say_format(struct words words, pccl_format format, double ns, double exact_ns) {
    char time[32], more[96];
    pccl__duration_text(ns, time, sizeof time);
    snprintf(more, sizeof more, "%s takes %s and %s", pccl_format_name(format), time,
             ns < exact_ns ? "pays" : "does not pay");
    say(words, ", ", more);
}

/* Would a format save time? Of one that was asked for, and else of three that differ in what they lose. */
static void say_formats(const struct pccl__team *team, const pccl_call *asked, const struct pccl__layout *layout,
                        double coding, struct words words) {
    static const pccl_format usual[] = {PCCL_TO_BFLOAT16, PCCL_INT8_BLOCK, PCCL_INT4_BLOCK};
    pccl_call call = *asked;
    call.errors = NULL;
    pccl_format given = call.quantization.format;
    if (given == PCCL_EXACT) call.quantization = (pccl_quantization){.format = usual[0]};
    if (coding <= 0 || team->size < 2 || pccl__coding_check(&call, NULL, NULL) != PCCL_OK) return;
    pccl_call exact = call;
    exact.quantization = (pccl_quantization){.format = PCCL_EXACT};
    double exact_ns = format_ns(team, exact, layout, coding);
    char time[32];
    pccl__duration_text(exact_ns, time, sizeof time);
    say(words, "; in full it takes ", time);
    for (size_t i = 0; i < (given ? 1 : sizeof usual / sizeof *usual); i++) {
        call.quantization.format = given ? given : usual[i];
        say_format(words, call.quantization.format, format_ns(team, call, layout, coding), exact_ns);
    }
}

pccl_status pccl__choice_explain(const struct pccl__team *team, const pccl_call *call,
                                 const struct pccl__layout *layout, struct pccl__choice_costs costs, char *text,
                                 size_t text_bytes, pccl_error *error) {
    static const char *const limits[PCCL_SHAPE_COUNT] = {"", "some links are down, the ring has none of them",
                                                         "so many links are down that only a tree is left"};
    if (pccl__is_pair(call->collective)) {
        snprintf(text, text_bytes, "%s: straight over the link between the two", pccl_algorithm_name(PCCL_PAIRWISE));
        return PCCL_OK;
    }
    bool has_data = pccl__has_data(call->collective);
    uint8_t traits = has_data ? needed(team, call, layout) : 0;
    const struct pccl__planner *planner = has_data ? pccl__choice_make(team, call, layout) : team->barrier;
    if (!planner) return pccl__fail(error, PCCL_UNSUPPORTED, "%s", pccl__choice_missing(team));
    pccl__planner_explain(&team->offers, planner, &team->shape, has_data ? total_bytes(call, layout) : 0, traits, text,
                          text_bytes);
    struct words words = {text, text_bytes};
    char prices[160];
    pccl__prices_text(costs.prices, team->one_host, prices, sizeof prices);
    say(words, "; at ", prices);
    if (has_data && wanted(team, call, traits))
        say(words, "; ", "forced by the caller");
    else if (has_data && planner == encoding_twice(team, call))
        say(words, "; ", "each contribution is encoded once and the sum once more");
    if (team->shape.kind != PCCL_SHAPE_FULL) say(words, "; ", limits[team->shape.kind]);
    if (has_data) say_formats(team, call, layout, costs.coding, words);
    return PCCL_OK;
}
