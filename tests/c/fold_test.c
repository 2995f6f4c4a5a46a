/* SPDX-License-Identifier: MIT
 *
 * fold_test.c - every level of CPU against scalar, byte for byte, over all formats, dtypes and kinds of values; scalar
 * against its own steps, one at a time; and what does not change a result: where arrays lie, where a run is cut, modes
 * of the calling thread.
 */
#include <fenv.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/prng.h"
#include "check.h"
#include "shared_codec.h"

enum { COUNT_MAX = 4099, ELEMENT_BYTES = 8, GUARD_BYTES = 64, GUARD = 0xa5 };
enum { BYTES = 2 * GUARD_BYTES + COUNT_MAX * ELEMENT_BYTES + 16 };
static const pccl_dtype dtypes[] = {PCCL_FLOAT32, PCCL_FLOAT64, PCCL_FLOAT16, PCCL_BFLOAT16};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

static const char *name_of(const struct pccl__kernels *k, const struct pccl__codec *codec) {
    static char text[128];
    snprintf(text, sizeof text, "%s %s, block %" PRIu32 "%s%s%s", k->level, pccl_format_name(codec->format),
             codec->block, codec->stochastic ? ", stochastic" : "", codec->propagate ? ", propagate" : "",
             codec->rotate ? ", rotate" : "");
    return text;
}

/* ---------------------------------------------------------------- levels */

/* The arrays of one fold; all but the pointers is compared. */
struct arena {
    uint8_t left[BYTES], right[BYTES], wire[BYTES], values[BYTES], errors[BYTES];
    size_t bad;
};

struct shape {
    struct pccl__codec codec;
    size_t count, at; /* `at`: bytes from an even address */
    pccl_dtype in, out;
    pccl_reduce_op op;
    float divisor;
    bool left_wire, right, right_wire, wire, values, errors, in_place;
};

static void run(const struct pccl__kernels *k, const struct shape *s, struct arena *a) {
    size_t at = GUARD_BYTES + s->at;
    struct pccl__fold fold = {
        .codec = &s->codec, .stream = 7, .elements = s->count, .op = s->op, .divisor = s->divisor, .dtype = s->out};
    if (s->left_wire)
        fold.left.wire = a->left + at;
    else
        fold.left.values = a->left + at;
    fold.left.dtype = s->in;
    fold.right.dtype = s->in;
    if (s->right && s->right_wire) fold.right.wire = a->right + at;
    if (s->right && !s->right_wire) fold.right.values = a->right + at;
    if (s->wire) fold.wire = (s->in_place && s->left_wire ? a->left : a->wire) + at;
    if (s->values) fold.values = (s->in_place && !s->left_wire && s->in == s->out ? a->left : a->values) + at;
    if (s->errors) fold.errors = (float *)(void *)(a->errors + at);
    a->bad = k->fold(&fold);
}

static void fill_operand(uint8_t *bytes, const struct shape *s, bool wire, enum codec_kind kind, uint64_t *seed) {
    float values[COUNT_MAX + 1];
    codec_fill(values, s->count, kind, seed);
    memset(bytes, GUARD, BYTES);
    if (!wire) {
        codec_convert(bytes + GUARD_BYTES + s->at, s->in, values, s->count);
    } else if (kind == KIND_BITS) {
        for (size_t i = 0; i < pccl__codec_bytes(&s->codec, s->count); i++)
            bytes[GUARD_BYTES + s->at + i] = (uint8_t)prng_next(seed);
    } else {
        struct pccl__codec codec = s->codec;
        codec.propagate = true;
        struct pccl__fold fold = {.codec = &codec,
                                  .elements = s->count,
                                  .left = {.values = values, .dtype = PCCL_FLOAT32},
                                  .wire = bytes + GUARD_BYTES + s->at};
        codec_levels[0].fold(&fold);
    }
}

static bool guards_hold(const uint8_t *bytes, size_t at, size_t used) {
    for (size_t i = 0; i < BYTES; i++)
        if ((i < GUARD_BYTES + at || i >= GUARD_BYTES + at + used) && bytes[i] != GUARD) return false;
    return true;
}

static void expect_alike(const struct shape *s, enum codec_kind kind, uint64_t *seed) {
    static struct arena start, want, is;
    fill_operand(start.left, s, s->left_wire, kind, seed);
    fill_operand(start.right, s, s->right_wire, kind == KIND_NAN ? KIND_NORMAL : kind, seed);
    memset(start.wire, GUARD, BYTES);
    memset(start.values, GUARD, BYTES);
    memset(start.errors, GUARD, BYTES);
    memset(start.errors + GUARD_BYTES + s->at, 0, s->count * sizeof(float));
    want = start;
    run(&codec_levels[0], s, &want);
    size_t wire = pccl__codec_bytes(&s->codec, s->count), values = s->count * pccl_dtype_bytes(s->out);
    EXPECT(guards_hold(want.wire, s->at, s->wire ? wire : 0) && guards_hold(want.values, s->at, values) &&
               guards_hold(want.errors, s->at, s->count * sizeof(float)),
           "%s, %zu: wrote outside", name_of(&codec_levels[0], &s->codec), s->count);
    if (s->right && s->wire && s->values) EXPECT(memcmp(want.right, start.right, BYTES) == 0, "an input changed");
    for (size_t level = 1; level < codec_levels_count; level++) {
        is = start;
        run(&codec_levels[level], s, &is);
        EXPECT(want.bad == is.bad, "%s, %zu of kind %d: first bad %zu, want %zu",
               name_of(&codec_levels[level], &s->codec), s->count, kind, is.bad, want.bad);
        if (is.bad != SIZE_MAX) continue; /* outputs are undefined */
        EXPECT(memcmp(&want, &is, offsetof(struct arena, bad)) == 0, "%s, %zu of kind %d, %s",
               name_of(&codec_levels[level], &s->codec), s->count, kind, pccl_dtype_name(s->in));
    }
}

static struct shape random_shape(uint64_t *seed) {
    static const uint32_t blocks[] = {32, 64, 96, 1024, 1056, 2048, 65536};
    static const size_t counts[] = {0, 1, 17, 31, 32, 33, 63, 100, 1023, 1024, 1025, 2049, COUNT_MAX};
    static const pccl_reduce_op ops[] = {PCCL_SUM, PCCL_AVG, PCCL_MIN, PCCL_MAX};
    static const float divisors[] = {0, 1, 3, 8};
    struct shape s = {.codec = {.format = (pccl_format)(1 + prng_below(seed, PCCL_FORMAT_COUNT - 1)),
                                .seed = prng_next(seed),
                                .stochastic = prng_below(seed, 2),
                                .propagate = prng_below(seed, 2)},
                      .count = counts[prng_below(seed, sizeof counts / sizeof counts[0])],
                      .at = prng_below(seed, 16),
                      .in = dtypes[prng_below(seed, DTYPES)],
                      .out = dtypes[prng_below(seed, DTYPES)],
                      .op = ops[prng_below(seed, 4)],
                      .divisor = divisors[prng_below(seed, 4)],
                      .left_wire = prng_below(seed, 2),
                      .right = prng_below(seed, 2),
                      .right_wire = prng_below(seed, 2),
                      .wire = prng_below(seed, 2),
                      .in_place = prng_below(seed, 2)};
    bool cast = pccl__format_of(s.codec.format)->parameter_bytes == 0;
    s.codec.block = cast ? 1024 : blocks[prng_below(seed, sizeof blocks / sizeof blocks[0])];
    s.codec.rotate = !cast && prng_below(seed, 2);
    s.values = !s.wire || prng_below(seed, 2);
    s.errors = s.wire && prng_below(seed, 2);
    return s;
}

static void test_levels(void) {
    uint64_t seed = 1;
    for (int i = 0; i < 30000; i++) {
        struct shape s = random_shape(&seed);
        expect_alike(&s, (enum codec_kind)prng_below(&seed, KINDS), &seed);
    }
}

/* Onto an input, of values or of wire form, is as good as beside it. */
static void test_in_place(void) {
    static struct arena apart, over;
    uint64_t seed = 5;
    for (int i = 0; i < 4000; i++) {
        struct shape s = random_shape(&seed);
        s.out = s.in;
        fill_operand(apart.left, &s, s.left_wire, KIND_NORMAL, &seed);
        fill_operand(apart.right, &s, s.right_wire, KIND_NORMAL, &seed);
        memset(apart.wire, GUARD, BYTES);
        memset(apart.values, GUARD, BYTES);
        memset(apart.errors, 0, BYTES);
        over = apart;
        s.in_place = false;
        run(&codec_levels[0], &s, &apart);
        s.in_place = true;
        run(&codec_levels[0], &s, &over);
        size_t at = GUARD_BYTES + s.at;
        const uint8_t *wire = s.left_wire ? over.left : over.wire, *values = s.left_wire ? over.values : over.left;
        EXPECT(!s.wire || memcmp(apart.wire + at, wire + at, pccl__codec_bytes(&s.codec, s.count)) == 0, "%s: wire",
               name_of(&codec_levels[0], &s.codec));
        EXPECT(!s.values || memcmp(apart.values + at, values + at, s.count * pccl_dtype_bytes(s.out)) == 0,
               "%s: values", name_of(&codec_levels[0], &s.codec));
        EXPECT(!s.errors || memcmp(apart.errors, over.errors, BYTES) == 0, "%s: errors",
               name_of(&codec_levels[0], &s.codec));
    }
}

/* ---------------------------------------------------------------- steps */

/* decode, combine, divide and encode, each alone. */
static void test_steps(void) {
    static float left[COUNT_MAX], right[COUNT_MAX], sum[COUNT_MAX], said[COUNT_MAX], values[COUNT_MAX];
    static float errors[COUNT_MAX];
    static uint8_t coded[BYTES], wire[BYTES], want[BYTES];
    uint64_t seed = 2;
    for (int i = 0; i < 2000; i++) {
        struct shape s = random_shape(&seed);
        codec_fill(left, s.count, (enum codec_kind)prng_below(&seed, KIND_OFFSET), &seed);
        codec_fill(right, s.count, KIND_NORMAL, &seed);
        const struct pccl__coded l = {.values = left, .dtype = PCCL_FLOAT32}, w = {.wire = coded};
        struct pccl__fold encode = {
            .codec = &s.codec, .elements = s.count, .left = {.values = right, .dtype = PCCL_FLOAT32}, .wire = coded};
        struct pccl__fold decode = {
            .codec = &s.codec, .elements = s.count, .left = w, .values = right, .dtype = PCCL_FLOAT32};
        codec_levels[0].fold(&encode);
        codec_levels[0].fold(&decode);
        memcpy(sum, left, sizeof sum);
        codec_levels[0].reduce[s.op][PCCL_FLOAT32](sum, sum, right, s.count);
        for (size_t j = 0; j < s.count && s.divisor != 0; j++) sum[j] /= s.divisor;
        encode.stream = 3;
        encode.left.values = sum;
        encode.wire = want;
        codec_levels[0].fold(&encode);
        decode.left.wire = want;
        decode.values = said;
        codec_levels[0].fold(&decode);
        memset(errors, 0, sizeof errors);
        struct pccl__fold all = {.codec = &s.codec, .stream = 3, .elements = s.count, .left = l, .right = w};
        all.op = s.op;
        all.divisor = s.divisor;
        all.values = values;
        all.dtype = PCCL_FLOAT32;
        codec_levels[0].fold(&all);
        EXPECT(memcmp(values, sum, s.count * sizeof *sum) == 0, "%s: sum", name_of(&codec_levels[0], &s.codec));
        all.wire = wire;
        all.errors = errors;
        codec_levels[0].fold(&all);
        EXPECT(memcmp(wire, want, pccl__codec_bytes(&s.codec, s.count)) == 0, "%s: wire",
               name_of(&codec_levels[0], &s.codec));
        EXPECT(memcmp(values, said, s.count * sizeof *said) == 0, "%s: said", name_of(&codec_levels[0], &s.codec));
        for (size_t j = 0; j < s.count; j++)
            EXPECT(errors[j] == (sum[j] - said[j]) * (s.divisor != 0 ? s.divisor : 1), "%s: error %zu",
                   name_of(&codec_levels[0], &s.codec), j);
    }
}

static void round_trip(const struct pccl__codec *codec, uint64_t stream, float *said, const float *values,
                       size_t count) {
    static uint8_t wire[BYTES];
    struct pccl__fold fold = {.codec = codec,
                              .stream = stream,
                              .elements = count,
                              .left = {.values = values, .dtype = PCCL_FLOAT32},
                              .wire = wire,
                              .values = said,
                              .dtype = PCCL_FLOAT32};
    EXPECT(codec_levels[0].fold(&fold) == SIZE_MAX, "%s", name_of(&codec_levels[0], codec));
}

/* A run that is cut at the codec's unit: parameters and codes lie elsewhere, but what they say is the same. */
static void test_cuts(void) {
    static float values[COUNT_MAX], whole[COUNT_MAX], parts[COUNT_MAX];
    uint64_t seed = 3, stream = (UINT64_C(1) << 32) - 50; /* its upper half changes on the way */
    for (int i = 0; i < 1000; i++) {
        struct shape s = random_shape(&seed);
        uint32_t unit = pccl__codec_unit(&s.codec);
        size_t cut = unit * prng_below(&seed, (uint32_t)s.count / unit + 1);
        codec_fill(values, s.count, KIND_NORMAL, &seed);
        round_trip(&s.codec, stream, whole, values, s.count);
        round_trip(&s.codec, stream, parts, values, cut);
        round_trip(&s.codec, stream + cut, parts + cut, values + cut, s.count - cut);
        EXPECT(memcmp(whole, parts, s.count * sizeof *whole) == 0, "%s, %zu cut at %zu",
               name_of(&codec_levels[0], &s.codec), s.count, cut);
    }
}

/* ---------------------------------------------------------------- modes */

static void test_modes(void) {
    static float values[COUNT_MAX], want[COUNT_MAX], is[COUNT_MAX];
    static const int roundings[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    uint64_t seed = 4;
    for (int i = 0; i < 300; i++) {
        struct shape s = random_shape(&seed);
        codec_fill(values, s.count, i % 2 ? KIND_TINY : KIND_NORMAL, &seed);
        round_trip(&s.codec, 1, want, values, s.count);
        for (size_t level = 0; level < codec_levels_count; level++) {
            uint8_t wire[BYTES];
            struct pccl__fold fold = {.codec = &s.codec, .stream = 1, .elements = s.count, .wire = wire};
            fold.left = (struct pccl__coded){.values = values, .dtype = PCCL_FLOAT32};
            fold.values = is;
            fold.dtype = PCCL_FLOAT32;
            fesetround(roundings[i % 3]);
#if defined(__x86_64__)
            _mm_setcsr(_mm_getcsr() | 0x8040); /* flush to zero, denormals are zero */
#endif
            codec_levels[level].fold(&fold);
#if defined(__x86_64__)
            _mm_setcsr(_mm_getcsr() & ~0x8040u);
#endif
            EXPECT(fegetround() == roundings[i % 3], "the mode was not given back");
            fesetround(FE_TONEAREST);
            EXPECT(memcmp(want, is, s.count * sizeof *is) == 0, "%s", name_of(&codec_levels[level], &s.codec));
        }
    }
}

int main(void) {
    codec_levels_find();
    test_levels();
    test_in_place();
    test_steps();
    test_cuts();
    test_modes();
    FINISH();
}
