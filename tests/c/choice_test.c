/* SPDX-License-Identifier: MIT
 *
 * choice_test.c - what is said about a choice: why, and whether a format would pay on the links of the view. The table
 * of planners is that of choose_test.
 */
#include "engine/choice.h"

#include <string.h>

#include "check.h"
#include "shared_cores.h"

static const char *explain(struct cores *c, pccl_call call, double coding) {
    static char text[1024];
    pccl_error error;
    EXPECT(pccl__core_explain(c->core[0], &call, coding, text, sizeof text, &error) == PCCL_OK, "%s", error.message);
    return text;
}

static const pccl_call SUM = {.collective = PCCL_ALL_REDUCE, .dtype = PCCL_FLOAT32, .count = 16 << 20};

/* Each on a host of its own: the default link between hosts is slower than arithmetic, unless that is very slow. */
static void test_pays(void) {
    static const uint64_t apart[CORES_MAX] = {1, 2, 3, 4};
    struct cores c = {.host_ids = apart};
    cores_make_among(&c, 4, NULL, 1, (struct pccl__sim_faults){0});
    const char *text = explain(&c, SUM, 4);
    EXPECT(strncmp(text, "ring: ", 6) == 0 && strstr(text, "; in full it takes "), "%s", text);
    EXPECT(strstr(text, "bfloat16 takes ") && strstr(text, "int8_block takes ") && strstr(text, "int4_block takes "));
    EXPECT(!strstr(text, "does not pay"), "%s", text);
    text = explain(&c, SUM, 1e-3);
    EXPECT(strstr(text, "s and does not pay") && !strstr(text, "and pays"), "%s", text);
    EXPECT(!strstr(explain(&c, SUM, 0), "in full"), "nothing is known of arithmetic");
    cores_free(&c);
}

static void test_says_how(void) {
    struct cores c;
    cores_make(&c, 4, NULL);
    pccl_call call = SUM;
    call.quantization.format = PCCL_INT8_BLOCK;
    const char *text = explain(&c, call, 4);
    EXPECT(strncmp(text, "direct: ", 8) == 0 && strstr(text, "encoded once and the sum once more"), "%s", text);
    EXPECT(strstr(text, "int8_block takes") && !strstr(text, "int4_block"), "%s", text);
    EXPECT(strstr(text, "1.50 times 16842752 bytes"), "%s", text); /* with 4 bytes for each 1,024 values */
    call.algorithm = PCCL_RING;
    text = explain(&c, call, 4);
    EXPECT(strncmp(text, "ring: ", 6) == 0 && strstr(text, "forced by the caller"), "%s", text);
    call = SUM;
    call.op = PCCL_PROD;
    EXPECT(!strstr(explain(&c, call, 4), "in full"), "a product has no quantized form");
    call = SUM;
    call.dtype = PCCL_INT32;
    EXPECT(!strstr(explain(&c, call, 4), "in full"), "neither have integers");
    cores_free(&c);
}

/* Among hosts with several members their wires are shared, so who knows hosts goes first. */
static void test_hosts(void) {
    static const uint64_t pairs[CORES_MAX] = {1, 1, 2, 2};
    struct cores c = {.host_ids = pairs};
    cores_make_among(&c, 4, NULL, 1, (struct pccl__sim_faults){0});
    pccl_call call = SUM;
    call.quantization.format = PCCL_INT8_BLOCK;
    const char *text = explain(&c, call, 4);
    EXPECT(strncmp(text, "hierarchical: ", 14) == 0, "%s", text);
    cores_free(&c);
}

int main(void) {
    test_pays();
    test_says_how();
    test_hosts();
    FINISH();
}
