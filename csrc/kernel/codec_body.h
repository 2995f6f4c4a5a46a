/* SPDX-License-Identifier: MIT
 *
 * codec_body.h - floats to codes and back, a tile of at most TILE values at a time, for one CPU level: included by
 * kernel_body.h. The loops have no branches, and what they need of a grid is in local variables, so that compilers
 * vectorise them.
 */
#include "kernel/grid.h"
#include "kernel/random.h"

enum { TILE = 1024, TILE_PADDING = 8 }; /* values; packed codes come in whole bytes */

/* A choice that no compiler turns into a jump: loops with jumps are not vectorised. */
static inline uint32_t choose(bool condition, uint32_t yes, uint32_t no) {
    uint32_t mask = 0 - (uint32_t)condition;
    return (yes & mask) | (no & ~mask);
}

/* A float of this size holds whole numbers in its last bits, rounded to nearest even by the addition. */
#define WHOLE 12582912.0f /* 1.5 * 2^23: negative ones, too */
static inline int32_t nearest(float value) { return (int32_t)(f32_raw(value + WHOLE) - f32_raw(WHOLE)); }

/* floor(value + number): up with the probability of what is after the point. */
static inline int32_t at_random(float value, float number) {
    float moved = value + number;
    int32_t whole = (int32_t)moved;
    return whole - ((float)whole > moved);
}

/* From 0 to below 1. */
static void random_numbers(float *numbers, uint64_t seed, uint64_t counter, size_t count) {
    while (count > 0) {
        uint64_t left = (UINT64_C(1) << 32) - (uint32_t)counter, key = random_key(seed, counter);
        size_t now = count < left ? count : (size_t)left;
        uint32_t first = (uint32_t)counter;
        INDEPENDENT
        for (size_t i = 0; i < now; i++) {
            int32_t bits = (int32_t)(random_bits(key, first + (uint32_t)i) >> 8);
            numbers[i] = (float)bits * 0x1p-24f;
        }
        numbers += now;
        counter += now;
        count -= now;
    }
}

/* ---------------------------------------------------------------- whole codes */

#define ENCODE_WHOLE(NAME, rounded)                                                                                    \
    static void NAME(any_u8 *codes, const float *x, const float *numbers, size_t count, const struct grid *grid) {     \
        const float unit = grid->unit, base = grid->base, inverse = grid->inverse;                                     \
        const int32_t zero = grid->zero, low = grid->low, high = grid->high;                                           \
        const uint8_t flip = grid->flip;                                                                               \
        const float slack = grid->slack, spread = grid->spread;                                                        \
        (void)numbers, (void)slack, (void)spread;                                                                      \
        INDEPENDENT                                                                                                    \
        for (size_t i = 0; i < count; i++) {                                                                           \
            float t = (x[i] * unit - base) * inverse;                                                                  \
            int32_t code = (rounded) + zero;                                                                           \
            code = code < low ? low : code;                                                                            \
            code = code > high ? high : code;                                                                          \
            codes[i] = (uint8_t)code ^ flip;                                                                           \
        }                                                                                                              \
    }
ENCODE_WHOLE(encode_whole, nearest(t))
ENCODE_WHOLE(encode_whole_at_random, at_random(t, numbers[i] * spread + slack))

static void decode_whole(float *x, const any_u8 *codes, size_t count, const struct grid *grid) {
    const float base = grid->base, step = grid->step, grow = grid->grow;
    const uint32_t bottom = f32_raw(grid->bottom), top = f32_raw(grid->top);
    const int32_t zero = grid->zero, low = grid->low, high = grid->high;
    const uint8_t flip = grid->flip;
    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        int32_t code = codes[i] ^ flip;
        float value = (base + (float)(code - zero) * step) * grow;
        uint32_t bits = choose(code <= low, bottom, f32_raw(value));
        x[i] = f32_load(choose(code >= high, top, bits));
    }
}

/* Codes of 4 and 2 bits, in bytes of their own before and after; the first one in the lowest bits. */
#define PACK(BITS, TYPE, packed, unpacked)                                                                             \
    static void pack##BITS(any_u8 *wire, const uint8_t *codes, size_t bytes) {                                         \
        const TYPE *from = (const TYPE *)codes;                                                                        \
        INDEPENDENT                                                                                                    \
        for (size_t i = 0; i < bytes; i++) {                                                                           \
            uint32_t c = from[i];                                                                                      \
            wire[i] = (uint8_t)(packed);                                                                               \
        }                                                                                                              \
    }                                                                                                                  \
    static void unpack##BITS(uint8_t *codes, const any_u8 *wire, size_t bytes) {                                       \
        TYPE *to = (TYPE *)codes;                                                                                      \
        INDEPENDENT                                                                                                    \
        for (size_t i = 0; i < bytes; i++) {                                                                           \
            uint32_t c = wire[i];                                                                                      \
            to[i] = (TYPE)(unpacked);                                                                                  \
        }                                                                                                              \
    }
PACK(4, any_u16, (c & 0x0f) | (c >> 4 & 0xf0), (c & 0x0f) | (c & 0xf0) << 4)
PACK(2, any_u32, (c & 3) | (c >> 6 & 0x0c) | (c >> 12 & 0x30) | (c >> 18 & 0xc0),
     (c & 3) | (c & 0x0c) << 6 | (c & 0x30) << 12 | (c & 0xc0) << 18)

/* ---------------------------------------------------------------- small floats */

/* The magnitude of a float with fewer bits: how many of its last places `value` has is a whole number after rounding. A
 * carry out of the fraction goes into the exponent, as it should. `largest` is its largest code; `smallest` the
 * exponent of its smallest normal number and `beyond` the first magnitude too large, both as bits of a float. */
#define SMALL_FLOAT(NAME, ROUNDED)                                                                                     \
    static inline uint32_t NAME(float value, float number, int fraction_bits, int32_t smallest, int32_t beyond,        \
                                uint32_t largest) {                                                                    \
        int32_t magnitude = (int32_t)(f32_raw(value) & 0x7fffffff);                                                    \
        int32_t bounded = magnitude < beyond ? magnitude : beyond;                                                     \
        int32_t power = bounded & 0x7f800000;                                                                          \
        int32_t exponent = power > smallest ? power : smallest;                                                        \
        float places =                                                                                                 \
            f32_load((uint32_t)bounded) * f32_load(((254u + (unsigned)fraction_bits) << 23) - (uint32_t)exponent);     \
        (void)number;                                                                                                  \
        uint32_t code = (uint32_t)(ROUNDED) + ((uint32_t)(exponent - smallest) >> (23 - fraction_bits));               \
        return code < largest ? code : largest;                                                                        \
    }
SMALL_FLOAT(small_nearest, nearest(places))
SMALL_FLOAT(small_at_random, at_random(places, number))

#define ENCODE_FLOAT8(NAME, SMALL, FRACTION_BITS, BIAS, BEYOND, LARGEST)                                               \
    static void NAME(any_u8 *codes, const float *x, const float *numbers, size_t count, const struct grid *grid) {     \
        const float unit = grid->unit, inverse = grid->inverse;                                                        \
        const float slack = grid->slack, spread = grid->spread;                                                        \
        (void)numbers, (void)slack, (void)spread;                                                                      \
        INDEPENDENT                                                                                                    \
        for (size_t i = 0; i < count; i++) {                                                                           \
            float t = x[i] * unit * inverse;                                                                           \
            uint32_t code = SMALL(t, NUMBER, FRACTION_BITS, (128 - (BIAS)) << 23, BEYOND, LARGEST);                    \
            codes[i] = (uint8_t)(code | (f32_raw(t) >> 24 & 0x80));                                                    \
        }                                                                                                              \
    }
#define E4M3(NAME, SMALL) ENCODE_FLOAT8(NAME, SMALL, 3, 7, 0x43e00000 /* 448 */, 0x7e)
#define E5M2(NAME, SMALL) ENCODE_FLOAT8(NAME, SMALL, 2, 15, 0x47600000 /* 57344 */, 0x7b)
#define NUMBER            0
E4M3(encode_e4m3, small_nearest)
E5M2(encode_e5m2, small_nearest)
#undef NUMBER
#define NUMBER numbers[i] * spread + slack
E4M3(encode_e4m3_at_random, small_at_random)
E5M2(encode_e5m2_at_random, small_at_random)
#undef NUMBER

/* Moving the bits of a small float is right but for the bias, as in f16_load. Codes that nobody encodes, its
 * infinities and NaNs, count as the largest. */
#define DECODE_FLOAT8(NAME, FRACTION_BITS, BIAS, LARGEST)                                                              \
    static void NAME(float *x, const any_u8 *codes, size_t count, const struct grid *grid) {                           \
        const float step = grid->step, grow = grid->grow;                                                              \
        const uint32_t top = f32_raw(grid->top);                                                                       \
        INDEPENDENT                                                                                                    \
        for (size_t i = 0; i < count; i++) {                                                                           \
            uint32_t code = codes[i], magnitude = code & 0x7f;                                                         \
            float small = f32_load(magnitude << (23 - FRACTION_BITS)) * f32_load((254u - (BIAS)) << 23);               \
            float value = small * step * grow;                                                                         \
            x[i] = f32_load(choose(magnitude >= LARGEST, top, f32_raw(value)) | (code & 0x80) << 24);                  \
        }                                                                                                              \
    }
DECODE_FLOAT8(decode_e4m3, 3, 7, 0x7e)
DECODE_FLOAT8(decode_e5m2, 2, 15, 0x7b)

/* Casts at random; to the nearest they are stores of elements. What is too large becomes infinite. */
static void cast_f16_at_random(any_u16 *codes, const float *x, const float *numbers, size_t count) {
    const int32_t largest = 0x477fe000; /* 65504 */
    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = f32_raw(x[i]), sign = bits >> 16 & 0x8000;
        float number = numbers[i] * (1 - 0x1p-12f) + 0x1p-13f; /* up to 2047 places: there a float has 2^-13 more */
        uint32_t code = small_at_random(x[i], number, 10, (127 - 14) << 23, largest, 0x7bff);
        code = choose((int32_t)(bits & 0x7fffffff) > largest, 0x7c00, code);
        codes[i] = (uint16_t)choose((int32_t)(bits & 0x7fffffff) > 0x7f800000, F16_NAN, sign | code);
    }
}

static void cast_bf16_at_random(any_u16 *codes, const float *x, const float *numbers, size_t count) {
    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = f32_raw(x[i]), rounded = bits + (uint32_t)(int32_t)(numbers[i] * 65536);
        codes[i] = (uint16_t)choose((int32_t)(bits & 0x7fffffff) > 0x7f800000, BF16_NAN, rounded >> 16);
    }
}

/* ---------------------------------------------------------------- a tile */

/* `wire`: the codes of this tile. `numbers` only where codec.stochastic. */
static void encode_tile(uint8_t *wire, const float *x, const float *numbers, size_t count, const struct grid *grid,
                        const struct pccl__codec *codec) {
    uint8_t codes[TILE + TILE_PADDING];
    int bits = pccl__format_of(codec->format)->bits;
    bool random = codec->stochastic;
    if (codec->format == PCCL_E4M3_BLOCK)
        (random ? encode_e4m3_at_random : encode_e4m3)(wire, x, numbers, count, grid);
    else if (codec->format == PCCL_E5M2_BLOCK)
        (random ? encode_e5m2_at_random : encode_e5m2)(wire, x, numbers, count, grid);
    else
        (random ? encode_whole_at_random : encode_whole)(bits == 8 ? wire : codes, x, numbers, count, grid);
    if (bits == 8) return;
    memset(codes + count, 0, TILE_PADDING);
    (bits == 4 ? pack4 : pack2)(wire, codes, (count * (size_t)bits + 7) / 8);
}

static void decode_tile(float *x, const uint8_t *wire, size_t count, const struct grid *grid,
                        const struct pccl__codec *codec) {
    uint8_t codes[TILE + TILE_PADDING];
    int bits = pccl__format_of(codec->format)->bits;
    if (codec->format == PCCL_E4M3_BLOCK) {
        decode_e4m3(x, wire, count, grid);
    } else if (codec->format == PCCL_E5M2_BLOCK) {
        decode_e5m2(x, wire, count, grid);
    } else {
        if (bits < 8) (bits == 4 ? unpack4 : unpack2)(codes, wire, (count * (size_t)bits + 7) / 8);
        decode_whole(x, bits == 8 ? wire : codes, count, grid);
    }
}
