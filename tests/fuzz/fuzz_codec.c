/* SPDX-License-Identifier: MIT
 *
 * fuzz_codec.c - whatever comes as a quantized payload: it is read and written within its bounds, and says finite
 * values or NaN; alike at every level of CPU; what is then encoded is finite or refused.
 *
 * The first bytes pick format, block, options and count, then come parameters and codes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "kernel/codec.h"
#include "kernel/kernel.h"
#include "shared_fuzz.h"

enum { COUNT_MAX = 300 };

static struct pccl__codec pick_codec(struct fuzz_input *input) {
    static const uint32_t blocks[] = {32, 64, 96, 1024};
    uint32_t options = fuzz_byte(input);
    struct pccl__codec codec = {.format = (pccl_format)(1 + fuzz_pick(input, PCCL_FORMAT_COUNT - 1)),
                                .stochastic = options & 1,
                                .propagate = options & 2,
                                .seed = options};
    bool cast = pccl__format_of(codec.format)->parameter_bytes == 0;
    codec.block = cast ? 1024 : blocks[fuzz_pick(input, 4)];
    codec.rotate = !cast && options & 4;
    return codec;
}

/* In memory of its own, so that a byte outside is seen. */
static void *memory(size_t bytes) {
    void *result = malloc(bytes + !bytes);
    CHECK(result);
    return result;
}

static float *decode(const struct pccl__kernels *kernels, const struct pccl__codec *codec, const uint8_t *wire,
                     size_t count) {
    float *values = memory(count * sizeof *values);
    struct pccl__fold fold = {
        .codec = codec, .elements = count, .left.wire = wire, .values = values, .dtype = PCCL_FLOAT32};
    CHECK(kernels->fold(&fold) == SIZE_MAX);
    return values;
}

static void fuzz_level(const struct pccl__kernels *kernels, const struct pccl__codec *codec, const uint8_t *wire,
                       const float *want, size_t count) {
    size_t bytes = pccl__codec_bytes(codec, count);
    float *values = decode(kernels, codec, wire, count);
    CHECK(memcmp(values, want, count * sizeof *values) == 0);
    uint8_t *coded = memory(bytes);
    struct pccl__fold fold = {.codec = codec, .elements = count, .left.wire = wire, .right.wire = wire, .wire = coded};
    size_t bad = kernels->fold(&fold);
    CHECK(codec->propagate ? bad == SIZE_MAX : bad == SIZE_MAX || bad < count);
    if (bad == SIZE_MAX) {
        float *again = decode(kernels, codec, coded, count);
        for (size_t i = 0; i < count && !codec->propagate; i++) CHECK(isfinite(again[i]));
        free(again);
    }
    free(coded);
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const unsigned masks[] = {0, PCCL__CPU_AVX2, PCCL__CPU_ALL};
    struct fuzz_input input = {data, size};
    struct pccl__codec codec = pick_codec(&input);
    size_t count = (fuzz_byte(&input) | fuzz_byte(&input) << 8) % COUNT_MAX, bytes = pccl__codec_bytes(&codec, count);
    uint8_t *wire = memory(bytes);
    struct pccl__kernels kernels = {0};
    for (size_t i = 0; i < bytes; i++) wire[i] = (uint8_t)fuzz_byte(&input);
    pccl__kernels_fill(&kernels, 0);
    float *want = decode(&kernels, &codec, wire, count);
    bool cast = pccl__format_of(codec.format)->parameter_bytes == 0;
    for (size_t i = 0; i < count && !cast; i++) CHECK(isfinite(want[i]) || isnan(want[i]));
    for (size_t m = 0; m < sizeof masks / sizeof masks[0]; m++) {
        pccl__kernels_fill(&kernels, masks[m]);
        fuzz_level(&kernels, &codec, wire, want, count);
    }
    free(want);
    free(wire);
    return 0;
}
