/* SPDX-License-Identifier: MIT
 *
 * kernel_test.c - every level of CPU against scalar, byte for byte; scalar against a reference written from the
 * definitions in kernel.h with other means (wide integers, a search for the nearest value).
 */
#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/prng.h"
#include "check.h"
#include "kernel/kernel.h"

enum { LARGE_COUNT = 10007, ELEMENT_BYTES = 16, LEVELS_MAX = 4, GUARD_BYTES = 64, GUARD = 0xa5 };
static const pccl_reduce_op ops[] = {PCCL_SUM, PCCL_PROD, PCCL_MIN, PCCL_MAX, PCCL_BAND, PCCL_BOR, PCCL_BXOR};
enum { OPS = sizeof ops / sizeof ops[0] };
static const uint32_t divisors[] = {1,        2,         3,   5,     7,     64,    100,   127,      128,
                                    200,      255,       256, 32767, 65535, 65536, 70000, 1u << 24, (1u << 24) + 1,
                                    1u << 31, UINT32_MAX};
enum { DIVISORS = sizeof divisors / sizeof divisors[0] };
static const double factors[] = {0, -0.0,  1,     -1,   0.5,   1.0 / 3,  -0.1,      65504,
                                 3, 1e-40, 1e-42, 1e39, 1e300, HUGE_VAL, -HUGE_VAL, NAN};
enum { FACTORS = sizeof factors / sizeof factors[0] };

static struct pccl__kernels levels[LEVELS_MAX]; /* those this CPU has; [0] is scalar */
static size_t levels_count;

/* ---------------------------------------------------------------- reference */

struct format {
    int exponent_bits, fraction_bits;
};

static struct format format_of(pccl_dtype dtype) {
    switch (dtype) {
    case PCCL_FLOAT16:
        return (struct format){5, 10};
    case PCCL_BFLOAT16:
        return (struct format){8, 7};
    case PCCL_FLOAT32:
        return (struct format){8, 23};
    case PCCL_FLOAT64:
        return (struct format){11, 52};
    default:
        return (struct format){0, 0};
    }
}

static bool is_float(pccl_dtype dtype) { return format_of(dtype).exponent_bits != 0; }

/* What an element is made of: a complex number of two of them, all else of itself. */
static pccl_dtype part_of(pccl_dtype dtype) {
    return dtype == PCCL_COMPLEX64 ? PCCL_FLOAT32 : dtype == PCCL_COMPLEX128 ? PCCL_FLOAT64 : dtype;
}
static size_t parts_of(pccl_dtype dtype, size_t count) { return part_of(dtype) == dtype ? count : 2 * count; }

static uint64_t infinity_bits(struct format f) { return ((1ull << f.exponent_bits) - 1) << f.fraction_bits; }
static uint64_t sign_bit(struct format f) { return 1ull << (f.exponent_bits + f.fraction_bits); }
static uint64_t nan_bits(struct format f) { return infinity_bits(f) | 1ull << (f.fraction_bits - 1); }

static double decode(struct format f, uint64_t bits) {
    uint64_t magnitude = bits & (sign_bit(f) - 1), fraction = magnitude & ((1ull << f.fraction_bits) - 1);
    int exponent = (int)(magnitude >> f.fraction_bits), bias = (1 << (f.exponent_bits - 1)) - 1;
    double value;
    if (magnitude >= infinity_bits(f))
        value = fraction ? NAN : HUGE_VAL;
    else if (exponent == 0)
        value = ldexp((double)fraction, 1 - bias - f.fraction_bits);
    else
        value = ldexp((double)(fraction | 1ull << f.fraction_bits), exponent - bias - f.fraction_bits);
    return bits & sign_bit(f) ? -value : value;
}

/* The nearest value of a 16-bit format, of two equally near ones the even one: by bisection. */
static uint64_t encode16(struct format f, double value) {
    uint64_t sign = signbit(value) ? sign_bit(f) : 0, low = 0, high = infinity_bits(f);
    double magnitude = fabs(value), largest = decode(f, high - 1);
    double beyond = 2 * largest - decode(f, high - 2); /* where the next value would be: stands for infinity */
    if (value != value) return nan_bits(f);
    if (magnitude >= beyond) return sign | high;
    while (high - low > 1) {
        uint64_t middle = (low + high) / 2;
        *(decode(f, middle) <= magnitude ? &low : &high) = middle;
    }
    double below = magnitude - decode(f, low);
    double above = (high == infinity_bits(f) ? beyond : decode(f, high)) - magnitude;
    return sign | (below < above || (below == above && !(low & 1)) ? low : high);
}

static uint64_t encode(pccl_dtype dtype, double value) {
    struct format f = format_of(dtype);
    uint64_t bits = 0;
    float narrow = (float)value;
    if (value != value) return nan_bits(f);
    if (dtype == PCCL_FLOAT64)
        memcpy(&bits, &value, 8);
    else if (dtype == PCCL_FLOAT32)
        memcpy(&bits, &narrow, 4);
    else
        bits = encode16(f, value);
    return bits;
}

static uint64_t reference_float(pccl_reduce_op op, pccl_dtype dtype, uint64_t a_bits, uint64_t b_bits) {
    struct format f = format_of(dtype);
    double a = decode(f, a_bits), b = decode(f, b_bits);
    if (op == PCCL_MIN || op == PCCL_MAX) {
        if (a != a || b != b) return nan_bits(f);
        if (a == b) /* only zeros can differ */
            return op == PCCL_MIN ? a_bits | b_bits : a_bits & b_bits;
        return (op == PCCL_MIN) == (a < b) ? a_bits : b_bits;
    }
    if (dtype == PCCL_FLOAT64) return encode(dtype, op == PCCL_SUM ? a + b : a * b);
    float x = (float)a, y = (float)b;
    return encode(dtype, op == PCCL_SUM ? x + y : x * y);
}

static __int128 wide(pccl_dtype dtype, uint64_t bits) {
    int shift = 64 - 8 * (int)pccl_dtype_bytes(dtype);
    bool is_signed = dtype % 2 == 0; /* the list alternates */
    return is_signed ? (__int128)((int64_t)(bits << shift) >> shift) : (__int128)bits;
}

static uint64_t narrow_to(pccl_dtype dtype, __int128 value) {
    size_t bits = 8 * pccl_dtype_bytes(dtype);
    return (uint64_t)value & (bits == 64 ? UINT64_MAX : (1ull << bits) - 1);
}

static uint64_t reference_bool(pccl_reduce_op op, bool a, bool b) {
    if (op == PCCL_BXOR) return a != b;
    return op == PCCL_PROD || op == PCCL_MIN || op == PCCL_BAND ? a && b : a || b;
}

static uint64_t reference(pccl_reduce_op op, pccl_dtype dtype, uint64_t a_bits, uint64_t b_bits) {
    if (is_float(dtype)) return reference_float(op, dtype, a_bits, b_bits);
    if (dtype == PCCL_BOOL) return reference_bool(op, a_bits, b_bits);
    __int128 a = wide(dtype, a_bits), b = wide(dtype, b_bits);
    switch (op) {
    case PCCL_SUM:
        return narrow_to(dtype, a + b);
    case PCCL_PROD:
        return narrow_to(dtype, (__int128)((unsigned __int128)a * (unsigned __int128)b));
    case PCCL_MIN:
        return narrow_to(dtype, a < b ? a : b);
    case PCCL_MAX:
        return narrow_to(dtype, a > b ? a : b);
    case PCCL_BAND:
        return a_bits & b_bits;
    case PCCL_BOR:
        return a_bits | b_bits;
    default:
        return (a_bits | b_bits) & ~(a_bits & b_bits);
    }
}

/* (a + bi)(c + di), one part of it. */
static uint64_t reference_product(pccl_dtype f, bool imaginary, const uint64_t left[2], const uint64_t right[2]) {
    uint64_t first = reference_float(PCCL_PROD, f, left[0], right[imaginary]);
    uint64_t second = reference_float(PCCL_PROD, f, left[1], right[!imaginary]);
    return reference_float(PCCL_SUM, f, first, imaginary ? second : second ^ sign_bit(format_of(f)));
}

static uint64_t reference_scale(pccl_dtype dtype, uint64_t bits, double factor) {
    double value = decode(format_of(dtype), bits);
    return encode(dtype, dtype == PCCL_FLOAT64 ? value * factor : (double)((float)value * (float)factor));
}

static uint64_t reference_divide(pccl_dtype dtype, uint64_t bits, uint32_t divisor) {
    if (!is_float(dtype)) return narrow_to(dtype, wide(dtype, bits) / divisor);
    double value = decode(format_of(dtype), bits);
    return encode(dtype, dtype == PCCL_FLOAT64 ? value / divisor : (double)((float)value / (float)divisor));
}

/* ---------------------------------------------------------------- input */

static uint64_t get(pccl_dtype dtype, const void *array, size_t index) {
    uint64_t bits = 0;
    size_t bytes = pccl_dtype_bytes(dtype);
    memcpy(&bits, (const uint8_t *)array + index * bytes, bytes);
    return bits;
}

static void put(pccl_dtype dtype, void *array, size_t index, uint64_t bits) {
    size_t bytes = pccl_dtype_bytes(dtype);
    memcpy((uint8_t *)array + index * bytes, &bits, bytes);
}

/* Zeros, ones, extremes, borders of subnormals, infinities, NaNs of all kinds. */
static uint64_t special(pccl_dtype dtype, uint32_t which) {
    struct format f = format_of(dtype);
    uint64_t unit = 1ull << f.fraction_bits, infinite = infinity_bits(f);
    uint64_t top = 1ull << (8 * pccl_dtype_bytes(dtype) - 1);
    uint64_t one = (uint64_t)((1 << (f.exponent_bits ? f.exponent_bits - 1 : 0)) - 1) << f.fraction_bits;
    const uint64_t floats[] = {0,
                               1,
                               unit - 1,
                               unit,
                               unit + 1,
                               one,
                               one + 1,
                               one - 1,
                               one + unit / 2,
                               infinite - 1,
                               infinite - unit,
                               infinite,
                               infinite + 1,
                               infinite + unit / 2,
                               infinite + unit - 1};
    const uint64_t integers[] = {0, 1, 2, 3, 100, top - 1, top - 2, top / 2};
    if (is_float(dtype)) return floats[which / 2 % 15] | (which % 2 ? top : 0);
    return narrow_to(dtype, which % 2 ? -(__int128)integers[which / 2 % 8] : (__int128)integers[which / 2 % 8]);
}
enum { SPECIALS = 30 };

/* Random bits (many NaNs and infinities for small floats), specials, and neighbours of one size that really add up. */
static void fill_random(pccl_dtype of, void *array, size_t count, uint64_t *seed) {
    pccl_dtype dtype = part_of(of);
    struct format f = format_of(dtype);
    for (size_t i = 0; i < parts_of(of, count); i++) {
        uint64_t bits = narrow_to(dtype, (__int128)prng_next(seed));
        uint32_t kind = prng_below(seed, 4);
        if (kind == 0)
            bits = special(dtype, prng_below(seed, SPECIALS));
        else if (kind == 1 && is_float(dtype)) {
            uint64_t exponent = infinity_bits(f) / 2 + ((uint64_t)prng_below(seed, 4) << f.fraction_bits);
            bits = (bits & ~infinity_bits(f)) | (exponent & infinity_bits(f));
        }
        put(dtype, array, i, bits);
    }
}

/* ---------------------------------------------------------------- tests */

static const char *dtype_op(pccl_dtype dtype, pccl_reduce_op op) {
    static char text[64];
    snprintf(text, sizeof text, "%s %s", pccl_reduce_op_name(op), pccl_dtype_name(dtype));
    return text;
}

static void expect_reduced(const struct pccl__kernels *k, pccl_reduce_op op, pccl_dtype dtype, const void *left,
                           const void *right, void *target, size_t count) {
    pccl_dtype part = part_of(dtype);
    k->reduce[op][dtype](target, left, right, count);
    for (size_t i = 0; i < parts_of(dtype, count); i++) {
        uint64_t a = get(part, left, i), b = get(part, right, i), is = get(part, target, i);
        uint64_t want = reference(op, part, a, b);
        if (part != dtype && op == PCCL_PROD) {
            uint64_t l[2] = {get(part, left, i & ~1u), get(part, left, i | 1)};
            uint64_t r[2] = {get(part, right, i & ~1u), get(part, right, i | 1)};
            want = reference_product(part, i & 1, l, r);
        }
        EXPECT(is == want, "%s %s of %" PRIx64 ", %" PRIx64 " is %" PRIx64 ", want %" PRIx64, k->level,
               dtype_op(dtype, op), a, b, is, want);
    }
}

static void test_values(const struct pccl__kernels *k) {
    static uint8_t left[LARGE_COUNT * ELEMENT_BYTES], right[LARGE_COUNT * ELEMENT_BYTES],
        target[LARGE_COUNT * ELEMENT_BYTES];
    uint64_t seed = 1;
    for (int d = 0; d < PCCL_DTYPE_COUNT; d++) {
        for (uint32_t i = 0; i < SPECIALS * SPECIALS; i++) {
            put(part_of(d), left, i, special(part_of(d), i / SPECIALS));
            put(part_of(d), right, i, special(part_of(d), i % SPECIALS));
        }
        size_t count = SPECIALS * SPECIALS / parts_of(d, 1);
        for (int o = 0; o < OPS; o++)
            if (k->reduce[ops[o]][d]) expect_reduced(k, ops[o], d, left, right, target, count);
        fill_random(d, left, LARGE_COUNT, &seed);
        fill_random(d, right, LARGE_COUNT, &seed);
        for (int o = 0; o < OPS; o++)
            if (k->reduce[ops[o]][d]) expect_reduced(k, ops[o], d, left, right, target, LARGE_COUNT);
    }
}

/* All bit patterns of the 16-bit types against a permutation of them. */
static void test_all_16_bits(const struct pccl__kernels *k) {
    static uint16_t left[65536], right[65536], target[65536];
    for (uint32_t i = 0; i < 65536; i++) {
        left[i] = (uint16_t)i;
        right[i] = (uint16_t)(i * 40503u + 12345u); /* an odd factor permutes */
    }
    for (int d = 0; d < PCCL_DTYPE_COUNT; d++)
        for (int o = 0; o < OPS && pccl_dtype_bytes(d) == 2; o++)
            if (k->reduce[ops[o]][d]) expect_reduced(k, ops[o], d, left, right, target, 65536);
}

static void expect_divided(const struct pccl__kernels *k, pccl_dtype dtype, const void *input, void *target,
                           uint32_t divisor, size_t count) {
    pccl_dtype part = part_of(dtype);
    memcpy(target, input, count * pccl_dtype_bytes(dtype));
    k->divide[dtype](target, divisor, count);
    for (size_t i = 0; i < parts_of(dtype, count); i++) {
        uint64_t a = get(part, input, i), want = reference_divide(part, a, divisor), is = get(part, target, i);
        EXPECT(is == want, "%s %s %" PRIx64 " / %" PRIu32 " is %" PRIx64 ", want %" PRIx64, k->level,
               pccl_dtype_name(dtype), a, divisor, is, want);
    }
}

static void test_divide(const struct pccl__kernels *k) {
    static uint8_t input[65536 * 2 + 4], target[65536 * 2 + 4];
    uint64_t seed = 2;
    for (int d = 0; d < PCCL_DTYPE_COUNT; d++)
        for (int i = 0; i < DIVISORS && k->divide[d]; i++) {
            size_t count = 1019;
            fill_random(d, input, count, &seed);
            for (size_t j = 0; j < count / 2 && !is_float(part_of(d)); j++) { /* multiples, one less, one more */
                __int128 multiple = (__int128)divisors[i] * prng_below(&seed, 100000) + (int)(j % 3) - 1;
                put(d, input, j, narrow_to(d, j % 2 ? -multiple : multiple));
            }
            expect_divided(k, d, input, target, divisors[i], count);
        }
    /* Every dividend of the small types; 41, 47, 49 ...: reciprocals would be wrong here. */
    for (int d = 0; d < PCCL_DTYPE_COUNT; d++) {
        size_t bytes = pccl_dtype_bytes(d), count = bytes == 1 ? 256 : 65536;
        for (uint32_t i = 0; i < count && bytes <= 2; i++) put(d, input, i, i);
        for (uint32_t divisor = 1; divisor <= 130 && bytes <= 2 && k->divide[d];
             divisor += bytes == 1 || divisor < 3 ? 1 : 38)
            expect_divided(k, d, input, target, divisor, count);
    }
}

enum { ALIAS_NONE, ALIAS_LEFT, ALIAS_RIGHT, ALIASES };

/* One call at odd addresses, against scalar on a copy; nothing else may have changed. */
static void expect_shape(const struct pccl__kernels *k, pccl_reduce_op op, pccl_dtype dtype, size_t count, int alias,
                         uint64_t *seed) {
    static uint8_t memory[3][2 * GUARD_BYTES + LARGE_COUNT * ELEMENT_BYTES + 16], before[3][sizeof memory[0]];
    static uint8_t want[LARGE_COUNT * ELEMENT_BYTES];
    size_t bytes = count * pccl_dtype_bytes(dtype), at[3];
    memset(memory, GUARD, sizeof memory);
    for (int i = 0; i < 3; i++) {
        at[i] = GUARD_BYTES + prng_below(seed, 16);
        fill_random(dtype, memory[i] + at[i], count, seed);
    }
    uint8_t *left = memory[1] + at[1], *right = memory[2] + at[2];
    uint8_t *target = alias == ALIAS_LEFT ? left : alias == ALIAS_RIGHT ? right : memory[0] + at[0];
    int changed = alias == ALIAS_LEFT ? 1 : alias == ALIAS_RIGHT ? 2 : 0;
    levels[0].reduce[op][dtype](want, left, right, count);
    memcpy(before, memory, sizeof memory);
    memcpy(before[changed] + at[changed], want, bytes);
    k->reduce[op][dtype](target, left, right, count);
    EXPECT(memcmp(before, memory, sizeof memory) == 0, "%s %s, %zu elements, alias %d", k->level, dtype_op(dtype, op),
           count, alias);
}

static void test_shapes(const struct pccl__kernels *k) {
    uint64_t seed = 3;
    for (int d = 0; d < PCCL_DTYPE_COUNT; d++)
        for (int o = 0; o < OPS; o++)
            for (int alias = 0; alias < ALIASES && k->reduce[ops[o]][d]; alias++) {
                for (size_t count = 0; count <= 67; count++) expect_shape(k, ops[o], d, count, alias, &seed);
                expect_shape(k, ops[o], d, LARGE_COUNT, alias, &seed);
            }
}

static void test_divide_shapes(const struct pccl__kernels *k) {
    uint8_t memory[2 * GUARD_BYTES + 67 * ELEMENT_BYTES + 16], want[sizeof memory];
    uint64_t seed = 4;
    for (int d = 0; d < PCCL_DTYPE_COUNT; d++)
        for (size_t count = 0; count <= 67 && k->divide[d]; count++) {
            pccl_dtype part = part_of(d);
            size_t at = GUARD_BYTES + prng_below(&seed, 16);
            memset(memory, GUARD, sizeof memory);
            fill_random(d, memory + at, count, &seed);
            memcpy(want, memory, sizeof memory);
            for (size_t i = 0; i < parts_of(d, count); i++)
                put(part, want + at, i, reference_divide(part, get(part, want + at, i), 3));
            k->divide[d](memory + at, 3, count);
            EXPECT(memcmp(memory, want, sizeof memory) == 0, "%s %s, %zu elements", k->level, pccl_dtype_name(d),
                   count);
        }
}

/* Into other memory and onto itself, at odd addresses, by every factor; nothing else may have changed. */
static void expect_scaled(const struct pccl__kernels *k, pccl_dtype dtype, double factor, size_t count,
                          uint64_t *seed) {
    static uint8_t source[LARGE_COUNT * ELEMENT_BYTES + 16];
    static uint8_t memory[2 * GUARD_BYTES + sizeof source], want[sizeof memory];
    pccl_dtype part = part_of(dtype);
    size_t bytes = count * pccl_dtype_bytes(dtype), at = GUARD_BYTES + prng_below(seed, 16);
    uint8_t *from = source + prng_below(seed, 16);
    fill_random(dtype, from, count, seed);
    memset(want, GUARD, sizeof want);
    for (size_t i = 0; i < parts_of(dtype, count); i++)
        put(part, want + at, i, reference_scale(part, get(part, from, i), factor));
    for (int alias = 0; alias < 2; alias++) {
        memset(memory, GUARD, sizeof memory);
        if (alias) memcpy(memory + at, from, bytes);
        k->scale[dtype](memory + at, alias ? memory + at : from, factor, count);
        EXPECT(memcmp(memory, want, sizeof memory) == 0, "%s %s, %zu elements by %g, alias %d", k->level,
               pccl_dtype_name(dtype), count, factor, alias);
    }
}

static void test_scale(const struct pccl__kernels *k) {
    uint64_t seed = 7;
    for (int d = 0; d < PCCL_DTYPE_COUNT; d++)
        for (int f = 0; f < FACTORS && k->scale[d]; f++) {
            expect_scaled(k, d, factors[f], LARGE_COUNT, &seed);
            for (size_t count = 0; count <= 67 && f == 5; count++) expect_scaled(k, d, factors[f], count, &seed);
        }
}

/* One of all kinds of kernels: those of `ops`, then divide, then scale. false: there is none. */
enum { KINDS = OPS + 2 };
static bool run(const struct pccl__kernels *k, int kind, pccl_dtype dtype, void *result, const void *right) {
    if (kind < OPS && k->reduce[ops[kind]][dtype])
        k->reduce[ops[kind]][dtype](result, result, right, LARGE_COUNT);
    else if (kind == OPS && k->divide[dtype])
        k->divide[dtype](result, 3, LARGE_COUNT);
    else if (kind == OPS + 1 && k->scale[dtype])
        k->scale[dtype](result, result, 1.0 / 3, LARGE_COUNT); /* a factor that is rounded */
    else
        return false;
    return true;
}

/* A thread that rounds upwards and flushes subnormals gets the same bytes, and its modes back. */
static void test_modes(const struct pccl__kernels *k) {
    static uint8_t left[LARGE_COUNT * ELEMENT_BYTES], right[LARGE_COUNT * ELEMENT_BYTES],
        want[LARGE_COUNT * ELEMENT_BYTES], target[LARGE_COUNT * ELEMENT_BYTES];
    uint64_t seed = 5;
    for (int d = 0; d < PCCL_DTYPE_COUNT; d++)
        for (int kind = 0; kind < KINDS; kind++) {
            fill_random(d, left, LARGE_COUNT, &seed);
            fill_random(d, right, LARGE_COUNT, &seed);
            for (int odd = 0; odd < 2; odd++) {
                uint8_t *result = odd ? target : want;
                memcpy(result, left, sizeof left);
                fesetround(odd ? FE_UPWARD : FE_TONEAREST);
#if defined(__x86_64__)
                unsigned modes = _mm_getcsr() | (odd ? 0x8040u : 0);
                _mm_setcsr(modes);
#endif
                run(k, kind, d, result, right);
#if defined(__x86_64__)
                unsigned sticky = 0x3f, after = _mm_getcsr();
                _mm_setcsr(after & ~0x8040u);
                EXPECT((modes & ~sticky) == (after & ~sticky), "%s: %x became %x", k->level, modes, after);
#endif
                EXPECT(fegetround() == (odd ? FE_UPWARD : FE_TONEAREST), "%s lost the rounding mode", k->level);
                fesetround(FE_TONEAREST);
            }
            EXPECT(memcmp(want, target, LARGE_COUNT * pccl_dtype_bytes(d)) == 0, "%s %s", k->level, pccl_dtype_name(d));
        }
}

/* RFC 3720, B.4, and the check value of every catalogue of CRCs. */
static void test_crc32c_vectors(const struct pccl__kernels *k) {
    static const uint8_t read_command[48] = {
        0x01, 0xc0, [16] = 0x14, [22] = 0x04, [27] = 0x14, [31] = 0x18, [32] = 0x28, [40] = 0x02};
    uint8_t bytes[32];
    memset(bytes, 0, 32);
    EXPECT(k->crc32c(0, bytes, 32) == 0x8a9136aa, "%s", k->level);
    memset(bytes, 0xff, 32);
    EXPECT(k->crc32c(0, bytes, 32) == 0x62a8ab43, "%s", k->level);
    for (int i = 0; i < 32; i++) bytes[i] = (uint8_t)i;
    EXPECT(k->crc32c(0, bytes, 32) == 0x46dd794e, "%s", k->level);
    for (int i = 0; i < 32; i++) bytes[i] = (uint8_t)(31 - i);
    EXPECT(k->crc32c(0, bytes, 32) == 0x113fdb5c, "%s", k->level);
    EXPECT(k->crc32c(0, read_command, 48) == 0xd9963a56, "%s", k->level);
    EXPECT(k->crc32c(0, "123456789", 9) == 0xe3069283, "%s", k->level);
    EXPECT(k->crc32c(0x12345678, NULL, 0) == 0x12345678, "%s", k->level);
}

/* Against the definition, bit by bit; cut anywhere, the parts give the crc of the whole. */
static void test_crc32c_lengths(const struct pccl__kernels *k) {
    static uint8_t data[8 + 4 * 3072];
    uint64_t seed = 6;
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)prng_next(&seed);
    for (int at = 0; at < 8; at++) {
        uint32_t remainder = UINT32_MAX;
        for (size_t bytes = 0; bytes <= sizeof data - 8; bytes++) {
            if (bytes < 70 || bytes % 1024 < 10 || bytes % 1024 > 1014) {
                size_t cut = prng_below(&seed, (uint32_t)bytes + 1);
                uint32_t parts = k->crc32c(k->crc32c(0, data + at, cut), data + at + cut, bytes - cut);
                EXPECT(k->crc32c(0, data + at, bytes) == ~remainder, "%s: %zu bytes at %d", k->level, bytes, at);
                EXPECT(parts == ~remainder, "%s: %zu bytes at %d cut at %zu", k->level, bytes, at, cut);
            }
            remainder ^= data[at + bytes];
            for (int bit = 0; bit < 8; bit++) remainder = remainder >> 1 ^ (0x82f63b78 & -(remainder & 1));
        }
    }
}

static void expect_hash(const void *data, size_t bytes, const char *want) {
    uint8_t digest[16];
    char text[33];
    pccl_hash128(data, bytes, digest);
    for (int i = 0; i < 16; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
    EXPECT(strcmp(text, want) == 0, "%zu bytes: %s", bytes, text);
}

/* Digests from another binding of XXH3, python-xxhash (xxh3_128_hexdigest). */
static void test_hash(void) {
    static const struct {
        size_t bytes;
        const char *digest;
    } known[] = {
        {0, "99aa06d3014798d86001c324468d497f"},    {1, "a6cd5e9392000f6ac44bdff4074eecdb"},
        {3, "150feba5f617888d6647634850539fa2"},    {4, "d1ccf8aaef8625b7d3e24227fed6084e"},
        {8, "60d434c02e7c0055a53ab584ca75281c"},    {9, "8f373ec5b5b14226fd3715994cdbb5f1"},
        {16, "d181322182aaf0a60cec926fa88db3e7"},   {17, "0b62d48d677fbb777d3fee37d1907991"},
        {128, "f2ce50e6bba34ceb34266088d526c40b"},  {129, "528f857e6a52a2445d52df56564c0193"},
        {240, "561a104565f6c1bd6e03c65576ae05a3"},  {241, "b70062d69f263df75b091583477772f7"},
        {1024, "1ae8b411f33f8300b8756b20ce66095f"}, {100000, "bde69e58b35d4764410a30509c513cb1"},
    };
    static uint8_t data[100000], shifted[100001];
    for (size_t i = 0; i < sizeof data; i++) data[i] = shifted[i + 1] = (uint8_t)(i * i * 7 + i * 13 + (i >> 8));
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        expect_hash(data, known[i].bytes, known[i].digest);
        expect_hash(shifted + 1, known[i].bytes, known[i].digest);
    }
    expect_hash(NULL, 0, known[0].digest);
}

static void test_names(void) {
    EXPECT(strcmp(pccl_dtype_name(PCCL_BFLOAT16), "bfloat16") == 0 && pccl_dtype_bytes(PCCL_BFLOAT16) == 2);
    EXPECT(strcmp(pccl_dtype_name(PCCL_UINT64), "uint64") == 0 && pccl_dtype_bytes(PCCL_UINT64) == 8);
    EXPECT(strcmp(pccl_dtype_name(PCCL_COMPLEX128), "complex128") == 0 && pccl_dtype_bytes(PCCL_COMPLEX128) == 16);
    EXPECT(strcmp(pccl_reduce_op_name(PCCL_AVG), "avg") == 0);
    EXPECT(strcmp(pccl_reduce_op_name(PCCL_PREMUL_SUM), "premul_sum") == 0);
    for (int o = 0; o < PCCL_REDUCE_OP_COUNT; o++) EXPECT(strcmp(pccl_reduce_op_name(o), "?") != 0);
    EXPECT(pccl_dtype_bytes(PCCL_DTYPE_COUNT) == 0 && pccl_dtype_bytes((pccl_dtype)-1) == 0);
    EXPECT(strcmp(pccl_dtype_name(PCCL_DTYPE_COUNT), "?") == 0);
    EXPECT(strcmp(pccl_reduce_op_name((pccl_reduce_op)-1), "?") == 0);
    for (int d = 0; d < PCCL_DTYPE_COUNT; d++) EXPECT(pccl_dtype_bytes(d) > 0 && strcmp(pccl_dtype_name(d), "?") != 0);
}

/* As pccl.h lists them: a letter for each operation, in its order. */
static bool exists(pccl_reduce_op op, pccl_dtype dtype) {
    const char *letters = "SAP<>&|^";
    if (is_float(dtype))
        letters = "SAP<>...*";
    else if (is_float(part_of(dtype)))
        letters = "SAP.....*";
    else if (dtype == PCCL_BOOL)
        letters = "S.P<>&|^";
    else if (dtype == PCCL_FLOAT8_E4M3FN || dtype == PCCL_FLOAT8_E5M2)
        letters = "";
    return strlen(letters) > op && letters[op] != '.';
}

/* Thread-safe, complete, and obedient to its mask. */
static void *take_kernels(void *unused) {
    (void)unused;
    return (void *)(uintptr_t)pccl__kernels();
}

static void test_tables(void) {
    pthread_t threads[4];
    void *taken;
    for (int i = 0; i < 4; i++) EXPECT(pthread_create(&threads[i], NULL, take_kernels, NULL) == 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &taken);
        EXPECT(taken == (const void *)pccl__kernels());
    }
    EXPECT(strcmp(levels[0].level, "scalar") == 0, "%s", levels[0].level);
    EXPECT(strcmp(pccl__kernels()->level, levels[levels_count - 1].level) == 0, "%s", pccl__kernels()->level);
    for (size_t i = 0; i < levels_count; i++) {
        EXPECT(levels[i].crc32c != NULL);
        for (int d = 0; d < PCCL_DTYPE_COUNT; d++) {
            EXPECT((levels[i].divide[d] != NULL) == exists(PCCL_AVG, d), "%s", pccl_dtype_name(d));
            EXPECT((levels[i].scale[d] != NULL) == exists(PCCL_PREMUL_SUM, d), "%s", pccl_dtype_name(d));
            for (int o = 0; o < PCCL_REDUCE_OP_COUNT; o++) {
                EXPECT((levels[i].reduce[o][d] != NULL) == exists(o, d), "%s", dtype_op(d, o));
                EXPECT(pccl__reduces_dtype(o, d) == exists(o, d), "%s", dtype_op(d, o));
                if (exists(o, d) && (o == PCCL_AVG || o == PCCL_PREMUL_SUM))
                    EXPECT(levels[i].reduce[o][d] == levels[i].reduce[PCCL_SUM][d], "%s", dtype_op(d, o));
            }
        }
    }
}

static void find_levels(void) {
    static const unsigned masks[] = {0, PCCL__CPU_SSE42 | PCCL__CPU_AVX2,
                                     PCCL__CPU_SSE42 | PCCL__CPU_AVX2 | PCCL__CPU_AVX512, PCCL__CPU_NEON};
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        struct pccl__kernels *k = &levels[levels_count];
        pccl__kernels_fill(k, masks[i]);
        levels_count += i == 0 || strcmp(k->level, "scalar") != 0;
    }
}

int main(void) {
    find_levels();
    test_tables();
    test_names();
    test_hash();
    for (size_t i = 0; i < levels_count; i++) {
        test_values(&levels[i]);
        test_all_16_bits(&levels[i]);
        test_divide(&levels[i]);
        test_shapes(&levels[i]);
        test_divide_shapes(&levels[i]);
        test_scale(&levels[i]);
        test_modes(&levels[i]);
        test_crc32c_vectors(&levels[i]);
        test_crc32c_lengths(&levels[i]);
        printf("%s: same bytes\n", levels[i].level);
    }
    FINISH();
}
