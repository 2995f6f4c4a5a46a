/* SPDX-License-Identifier: MIT
 *
 * grid.h - which values the codes of a block stand for: chosen from the block's range, and read back from the
 * parameters on the wire. Encoder and decoder both take what was read.
 *
 * Once per block and in doubles, where no range of floats over- or underflows. The loops over values compute in floats;
 * `unit`, a power of two, keeps them from that: it is 1 for all but the largest ranges and the smallest.
 */
#ifndef PCCL_KERNEL_GRID_H
#define PCCL_KERNEL_GRID_H

#include <float.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernel/codec.h"
#include "kernel/element.h"

struct grid {
    float unit, base, inverse; /* code = round((value * unit - base) * inverse) + zero, within low..high */
    float step, grow;          /* value = (base + (code - zero) * step) * grow */
    int32_t zero, low, high;   /* codes, counted from 0 */
    float bottom, top;         /* what `low` and `high` stand for, exactly */
    uint8_t flip;              /* code ^ flip is what the wire has */
    bool nan;                  /* all of the block is NaN; nothing else is set */
};

enum { PARAMETER_BYTES_MAX = 8 };

static inline float grid_unit(double range) { return range > FLT_MAX ? 0.5f : range < 0x1p-64 ? 0x1p64f : 1; }

/* A step of at most 16 significant bits, not below `exact`: its multiples up to 255 are then exact, and coding what
 * was decoded gives the same again. Below 2^-133 it may have fewer. */
static inline float grid_step_up(double exact) {
    uint32_t bits = f32_raw((float)exact);
    if ((double)f32_load(bits) < exact) bits++;
    return f32_load(bits < 0x10000 ? bits : (bits + 0xff) & ~UINT32_C(0xff));
}

/* The whole number next to it, of two the even one; below 2^51. */
static inline double grid_round(double value) { return value + 0x1p52 - 0x1p52; }

/* Both ends go on the wire: with lowest value and step instead, the highest would be a little off, and a repeated
 * coding would change it again and again. */
static inline void grid_of_min_max(struct grid *grid, float low, float high) {
    double range = (double)high - low;
    float unit = range > 0 ? grid_unit(range) : 1;
    grid->nan = !(low <= high && low >= -FLT_MAX && high <= FLT_MAX);
    if (grid->nan) return;
    grid->unit = unit;
    grid->grow = 1 / unit;
    grid->base = low * unit;
    grid->step = (float)(range * unit / 255);
    grid->inverse = range > 0 ? (float)(255 / (range * unit)) : 0;
    grid->low = 0;
    grid->high = 255;
    grid->bottom = range > 0 ? low : high; /* of zeros with different signs the positive one */
    grid->top = high;
    grid->zero = 0;
}

static inline void grid_of_zero_point(struct grid *grid, float step, uint32_t zero) {
    double below = (double)step * (zero & 255), above = (double)step * (255 - (zero & 255));
    grid->nan = !(step >= 0 && step <= FLT_MAX);
    if (grid->nan) return;
    grid->unit = grid_unit(step);
    grid->grow = 1;
    grid->base = 0;
    grid->step = step;
    grid->inverse = step > 0 ? (float)(1 / ((double)step * grid->unit)) : 0;
    grid->zero = (int32_t)(zero & 255);
    grid->low = 0;
    grid->high = 255;
    grid->bottom = below > FLT_MAX ? -FLT_MAX : -(float)below; /* an end lies up to half a step outside the range */
    grid->top = above > FLT_MAX ? FLT_MAX : (float)above;
}

/* The codes -levels..levels, of what is `levels` in magnitude at most. */
static inline void grid_of_largest(struct grid *grid, float largest, int32_t levels, int32_t zero) {
    double range = largest;
    grid->nan = !(largest >= 0 && largest <= FLT_MAX);
    if (grid->nan) return;
    grid->unit = range > 0 && range < 0x1p-64 ? 0x1p64f : 1;
    grid->grow = 1 / grid->unit;
    grid->base = 0;
    grid->step = (float)(range * grid->unit / levels);
    grid->inverse = range > 0 ? (float)(levels / (range * grid->unit)) : 0;
    grid->zero = zero;
    grid->low = zero - levels;
    grid->high = zero + levels;
    grid->bottom = -largest;
    grid->top = largest;
}

/* The parameters of a block of finite values. At random rounding goes up to the next code, so a zero that was itself
 * rounded needs room of one: else values at the ends could go only one way, a bias. */
static inline void grid_choose(uint8_t *parameters, const struct pccl__codec *codec, float low, float high) {
    float words[2] = {low, high};
    if (codec->format == PCCL_UINT8_ZERO_POINT || codec->format == PCCL_INT8_ZERO_POINT) {
        double bottom = low < 0 ? low : 0, top = high > 0 ? high : 0;
        float step = grid_step_up((top - bottom) / (codec->stochastic ? 254 : 255));
        double steps = step > 0 ? -bottom / step : 0, zero = grid_round(steps);
        if (codec->stochastic && zero < steps) zero += 1;
        words[0] = step;
        words[1] = f32_load((uint32_t)zero);
    } else if (codec->format >= PCCL_INT8_BLOCK) {
        words[0] = -low > high ? -low : high;
        if (words[0] == 0) words[0] = 0; /* not the negative one */
    }
    memcpy(parameters, words, sizeof words);
}

/* Says that the block is NaN. */
static inline void grid_choose_nan(uint8_t *parameters) {
    const uint32_t words[2] = {F32_NAN, F32_NAN};
    memcpy(parameters, words, sizeof words);
}

/* Any bytes are allowed. */
static inline void grid_read(struct grid *grid, const struct pccl__codec *codec, const uint8_t *parameters) {
    uint32_t words[2] = {0, 0};
    memcpy(words, parameters, pccl__format_of(codec->format)->parameter_bytes);
    float first = f32_load(words[0]);
    switch (codec->format) {
    case PCCL_UINT8_MIN_MAX:
    case PCCL_INT8_MIN_MAX:
        grid_of_min_max(grid, first, f32_load(words[1]));
        grid->flip = codec->format == PCCL_INT8_MIN_MAX ? 0x80 : 0;
        return;
    case PCCL_UINT8_ZERO_POINT:
    case PCCL_INT8_ZERO_POINT:
        grid_of_zero_point(grid, first, words[1]);
        grid->flip = codec->format == PCCL_INT8_ZERO_POINT ? 0x80 : 0;
        return;
    case PCCL_INT8_BLOCK:
        grid_of_largest(grid, first, 127, 128);
        break;
    case PCCL_INT4_BLOCK:
        grid_of_largest(grid, first, 7, 8);
        break;
    case PCCL_INT2_BLOCK:
        grid_of_largest(grid, first, 1, 2);
        break;
    case PCCL_E4M3_BLOCK:
        grid_of_largest(grid, first, 448, 0);
        break;
    default: /* PCCL_E5M2_BLOCK */
        grid_of_largest(grid, first, 57344, 0);
        break;
    }
    grid->flip = (uint8_t)grid->zero; /* the zero of signed codes: so they are in two's complement */
}

#endif
