/* SPDX-License-Identifier: MIT
 *
 * kernel_test.c - every level of CPU against scalar, byte for byte; scalar against a reference written from the
 * definitions in kernel.h with other means (wide integers, a search for the nearest value). `--bench` measures.
 */
#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/prng.h"
#include "check.h"
#include "kernel/kernel.h"

enum { LARGE_COUNT = 10007, LEVELS_MAX = 4, GUARD_BYTES = 64, GUARD = 0xa5 };
static const pccl_reduce_op ops[] = {PCCL_SUM, PCCL_PROD, PCCL_MIN, PCCL_MAX};
enum { OPS = sizeof ops / sizeof ops[0] };
static const uint32_t divisors[] = {1,        2,         3,   5,     7,     64,    100,   127,      128,
                                    200,      255,       256, 32767, 65535, 65536, 70000, 1u << 24, (1u << 24) + 1,
                                    1u << 31, UINT32_MAX};
enum { DIVISORS = sizeof divisors / sizeof divisors[0] };

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

static uint64_t reference(pccl_reduce_op op, pccl_dtype dtype, uint64_t a_bits, uint64_t b_bits) {
    if (is_float(dtype)) return reference_float(op, dtype, a_bits, b_bits);
    __int128 a = wide(dtype, a_bits), b = wide(dtype, b_bits);
    switch (op) {
    case PCCL_SUM:
        return narrow_to(dtype, a + b);
    case PCCL_PROD:
        return narrow_to(dtype, (__int128)((unsigned __int128)a * (unsigned __int128)b));
    case PCCL_MIN:
        return narrow_to(dtype, a < b ? a : b);
    default:
        return narrow_to(dtype, a > b ? a : b);
    }
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
static void fill_random(pccl_dtype dtype, void *array, size_t count, uint64_t *seed) {
    struct format f = format_of(dtype);
    for (size_t i = 0; i < count; i++) {
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
    k->reduce[op][dtype](target, left, right, count);
    for (size_t i = 0; i < count; i++) {
        uint64_t a = get(dtype, left, i), b = get(dtype, right, i);
        uint64_t want = reference(op, dtype, a, b), is = get(dtype, target, i);
        EXPECT(is == want, "%s %s of %" PRIx64 ", %" PRIx64 " is %" PRIx64 ", want %" PRIx64, k->level,
               dtype_op(dtype, op), a, b, is, want);
    }
}

static void test_values(const struct pccl__kernels *k) {
    static uint8_t left[LARGE_COUNT * 8], right[LARGE_COUNT * 8], target[LARGE_COUNT * 8];
    uint64_t seed = 1;
    for (int d = 0; d < PCCL_DTYPE_COUNT; d++) {
        for (uint32_t i = 0; i < SPECIALS * SPECIALS; i++) {
            put(d, left, i, special(d, i / SPECIALS));
            put(d, right, i, special(d, i % SPECIALS));
        }
        for (int o = 0; o < OPS; o++) expect_reduced(k, ops[o], d, left, right, target, SPECIALS * SPECIALS);
        fill_random(d, left, LARGE_COUNT, &seed);
        fill_random(d, right, LARGE_COUNT, &seed);
        for (int o = 0; o < OPS; o++) expect_reduced(k, ops[o], d, left, right, target, LARGE_COUNT);
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
            expect_reduced(k, ops[o], d, left, right, target, 65536);
}

static void expect_divided(const struct pccl__kernels *k, pccl_dtype dtype, const void *input, void *target,
                           uint32_t divisor, size_t count) {
    memcpy(target, input, count * pccl_dtype_bytes(dtype));
    k->divide[dtype](target, divisor, count);
    for (size_t i = 0; i < count; i++) {
        uint64_t a = get(dtype, input, i), want = reference_divide(dtype, a, divisor), is = get(dtype, target, i);
        EXPECT(is == want, "%s %s %" PRIx64 " / %" PRIu32 " is %" PRIx64 ", want %" PRIx64, k->level,
               pccl_dtype_name(dtype), a, divisor, is, want);
    }
}

static void test_divide(const struct pccl__kernels *k) {
    static uint8_t input[65536 * 2 + 4], target[65536 * 2 + 4];
    uint64_t seed = 2;
    for (int d = 0; d < PCCL_DTYPE_COUNT; d++)
        for (int i = 0; i < DIVISORS; i++) {
            size_t count = 1019;
            fill_random(d, input, count, &seed);
            for (size_t j = 0; j < count / 2 && !is_float(d); j++) { /* multiples, one less, one more */
                __int128 multiple = (__int128)divisors[i] * prng_below(&seed, 100000) + (int)(j % 3) - 1;
                put(d, input, j, narrow_to(d, j % 2 ? -multiple : multiple));
            }
            expect_divided(k, d, input, target, divisors[i], count);
        }
    /* Every dividend of the small types; 41, 47, 49 ...: reciprocals would be wrong here. */
    for (int d = 0; d < PCCL_DTYPE_COUNT; d++) {
        size_t bytes = pccl_dtype_bytes(d), count = bytes == 1 ? 256 : 65536;
        for (uint32_t i = 0; i < count && bytes <= 2; i++) put(d, input, i, i);
        for (uint32_t divisor = 1; divisor <= 130 && bytes <= 2; divisor += bytes == 1 || divisor < 3 ? 1 : 38)
            expect_divided(k, d, input, target, divisor, count);
    }
}

enum { ALIAS_NONE, ALIAS_LEFT, ALIAS_RIGHT, ALIASES };

/* One call at odd addresses, against scalar on a copy; nothing else may have changed. */
static void expect_shape(const struct pccl__kernels *k, pccl_reduce_op op, pccl_dtype dtype, size_t count, int alias,
                         uint64_t *seed) {
    static uint8_t memory[3][2 * GUARD_BYTES + LARGE_COUNT * 8 + 16], before[3][sizeof memory[0]];
    static uint8_t want[LARGE_COUNT * 8];
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
            for (int alias = 0; alias < ALIASES; alias++) {
                for (size_t count = 0; count <= 67; count++) expect_shape(k, ops[o], d, count, alias, &seed);
                expect_shape(k, ops[o], d, LARGE_COUNT, alias, &seed);
            }
}

static void test_divide_shapes(const struct pccl__kernels *k) {
    uint8_t memory[2 * GUARD_BYTES + 67 * 8 + 16], want[sizeof memory];
    uint64_t seed = 4;
    for (int d = 0; d < PCCL_DTYPE_COUNT; d++)
        for (size_t count = 0; count <= 67; count++) {
            size_t at = GUARD_BYTES + prng_below(&seed, 16);
            memset(memory, GUARD, sizeof memory);
            fill_random(d, memory + at, count, &seed);
            memcpy(want, memory, sizeof memory);
            for (size_t i = 0; i < count; i++) put(d, want + at, i, reference_divide(d, get(d, want + at, i), 3));
            k->divide[d](memory + at, 3, count);
            EXPECT(memcmp(memory, want, sizeof memory) == 0, "%s %s, %zu elements", k->level, pccl_dtype_name(d),
                   count);
        }
}

/* A thread that rounds upwards and flushes subnormals gets the same bytes, and its modes back. */
static void test_modes(const struct pccl__kernels *k) {
    static uint8_t left[LARGE_COUNT * 8], right[LARGE_COUNT * 8], want[LARGE_COUNT * 8], target[LARGE_COUNT * 8];
    uint64_t seed = 5;
    for (int d = 0; d < PCCL_DTYPE_COUNT; d++)
        for (int o = 0; o < OPS + 1; o++) {
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
                if (o < OPS)
                    k->reduce[ops[o]][d](result, result, right, LARGE_COUNT);
                else
                    k->divide[d](result, 3, LARGE_COUNT);
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
    EXPECT(strcmp(pccl_reduce_op_name(PCCL_AVG), "avg") == 0);
    EXPECT(pccl_dtype_bytes(PCCL_DTYPE_COUNT) == 0 && pccl_dtype_bytes((pccl_dtype)-1) == 0);
    EXPECT(strcmp(pccl_dtype_name(PCCL_DTYPE_COUNT), "?") == 0);
    EXPECT(strcmp(pccl_reduce_op_name((pccl_reduce_op)-1), "?") == 0);
    for (int d = 0; d < PCCL_DTYPE_COUNT; d++) EXPECT(pccl_dtype_bytes(d) > 0 && strcmp(pccl_dtype_name(d), "?") != 0);
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
            EXPECT(levels[i].divide[d] != NULL);
            EXPECT(levels[i].reduce[PCCL_AVG][d] == levels[i].reduce[PCCL_SUM][d]);
            for (int o = 0; o < PCCL_REDUCE_OP_COUNT; o++) EXPECT(levels[i].reduce[o][d] != NULL);
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

/* ---------------------------------------------------------------- bench */

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What is measured: op < OPS reduces, OPS divides, then crc32c, then hash. */
static void bench_call(const struct pccl__kernels *k, int op, pccl_dtype d, uint8_t *memory, size_t bytes) {
    uint8_t digest[16];
    size_t count = bytes / pccl_dtype_bytes(d);
    if (op < OPS)
        k->reduce[ops[op]][d](memory, memory, memory + bytes, count);
    else if (op == OPS)
        k->divide[d](memory, 3, count);
    else if (op == OPS + 1)
        memory[0] = (uint8_t)k->crc32c(0, memory, bytes);
    else {
        pccl_hash128(memory, bytes, digest);
        memory[0] = digest[0];
    }
}

/* Bytes of the target per second, in GB; the best of some batches, as other programs disturb. */
static double bench_one(const struct pccl__kernels *k, int op, pccl_dtype d, uint8_t *memory, size_t bytes) {
    double best = 0;
    size_t calls = bytes > 1 << 20 ? 1 : 64;
    uint64_t one = is_float(d) ? encode(d, 1.0) : 1; /* sums and products of it meet no slow subnormals */
    for (size_t width = pccl_dtype_bytes(d); width < 8; width *= 2) one |= one << 8 * width;
    for (size_t filled = 0; filled < 2 * bytes; filled += 8) memcpy(memory + filled, &one, 8);
    for (int batch = 0; batch < 5; batch++) {
        double start = now_s();
        for (size_t i = 0; i < calls; i++) bench_call(k, op, d, memory, bytes);
        double rate = 1e-9 * (double)(bytes * calls) / (now_s() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

static int bench(void) {
    static const size_t sizes[] = {256 << 10, 64 << 20};
    uint8_t *memory = aligned_alloc(64, 2 * sizes[1]);
    EXPECT(memory != NULL);
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < levels_count; i++) {
            const struct pccl__kernels *k = &levels[i];
            printf("%s, %zu KiB, GB/s\n%-10s", k->level, sizes[s] >> 10, "");
            for (int o = 0; o < OPS; o++) printf("%8s", pccl_reduce_op_name(ops[o]));
            printf("%8s\n", "divide");
            for (int d = 0; d < PCCL_DTYPE_COUNT; d++) {
                printf("%-10s", pccl_dtype_name(d));
                for (int o = 0; o <= OPS; o++) printf("%8.1f", bench_one(k, o, d, memory, sizes[s]));
                printf("\n");
            }
            printf("%-10s%8.1f\n", "crc32c", bench_one(k, OPS + 1, PCCL_UINT8, memory, sizes[s]));
            printf("%-10s%8.1f\n\n", "hash128", bench_one(k, OPS + 2, PCCL_UINT8, memory, sizes[s]));
        }
    free(memory);
    return 0;
}

int main(int argc, char **argv) {
    find_levels();
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) return bench();
    test_tables();
    test_names();
    test_hash();
    for (size_t i = 0; i < levels_count; i++) {
        test_values(&levels[i]);
        test_all_16_bits(&levels[i]);
        test_divide(&levels[i]);
        test_shapes(&levels[i]);
        test_divide_shapes(&levels[i]);
        test_modes(&levels[i]);
        test_crc32c_vectors(&levels[i]);
        test_crc32c_lengths(&levels[i]);
        printf("%s: same bytes\n", levels[i].level);
    }
    FINISH();
}
