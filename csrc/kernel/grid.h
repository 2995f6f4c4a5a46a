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
    float slack, spread;       /* at random, value + slack + number * spread is rounded down, see grid_slack */
    bool nan;                  /* all of the block is NaN; nothing else is set */
};

enum { PARAMETER_BYTES_MAX = 8 };

static inline float grid_unit(double range) { return range > FLT_MAX ? 0.5f : range < 0x1p-64 ? 0x1p64f : 1; }

/* The whole number next to it, of two the even one; below 2^51. */
static inline double grid_round(double value) { return value + 0x1p52 - 0x1p52; }

/* What lies on the grid arrives at its code with an error, and must stay there when it is rounded at random: so numbers
 * keep away from 0 and 1 by as much, in steps. In the end this costs no more than floats do: values are off by no more
 * than their own last place on average. 2^-13 is above what the arithmetic adds. */
static inline void grid_slack(struct grid *grid, double largest, double place) {
    double off = largest * 0x1p-24 > 0x1p-150 ? largest * 0x1p-24 : 0x1p-150; /* half of a float's last place */
    double slack = 0x1p-13 + (place > 0 ? off / place : 0);
    grid->slack = slack < 0.5 ? (float)slack : 0.5f;
    grid->spread = 1 - 2 * grid->slack;
}

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
    double largest = -low > high ? -(double)low : high;
    grid_slack(grid, largest, range / 255);
}

/* `peak`, the value farthest from zero, has code 255, or 0 where it is negative; `zero` has zero. With lowest and
 * highest value, neither of which has a code exactly, the range would shrink at each repeated coding. */
static inline void grid_of_zero_point(struct grid *grid, float peak, uint32_t zero) {
    int32_t code = (int32_t)(zero & 255), levels = peak < 0 ? code : 255 - code;
    double range = peak < 0 ? -(double)peak : peak;
    grid->nan = !(range <= FLT_MAX) || levels == 0;
    if (grid->nan) return;
    grid->unit = range > 0 ? grid_unit(range) : 1;
    grid->grow = 1 / grid->unit;
    grid->base = 0;
    grid->step = (float)(range * grid->unit / levels);
    grid->inverse = range > 0 ? (float)(levels / (range * grid->unit)) : 0;
    /* The other end may lie a step farther than any value: too far for a float. */
    double step = (double)grid->step * grid->grow, most = range > 0 ? FLT_MAX / step : 255;
    int32_t reach = most < 255 ? (int32_t)most + 1 : 255; /* this one counts as the largest float */
    grid->zero = code;
    grid->low = code < reach ? 0 : code - reach;
    grid->high = 255 - code < reach ? 255 : code + reach;
    double below = (grid->low - code) * step, above = (grid->high - code) * step;
    grid->bottom = peak < 0 ? peak : below < -FLT_MAX ? -FLT_MAX : (float)below;
    grid->top = peak > 0 ? peak : above > FLT_MAX ? FLT_MAX : (float)above;
    grid_slack(grid, 0, step);
}

/* Codes, or small floats, from -levels to levels, of which `levels` stands for `largest`; `place`: the least distance
 * of two. */
static inline void grid_of_largest(struct grid *grid, float largest, int32_t levels, double place, int32_t zero) {
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
    grid_slack(grid, 0, range / levels * place);
}

/* The zero for a range that was widened to hold it: as many steps of 255 from the lesser end as that needs, and the
 * steps then grow so that the peak has the last code, at most by 1 in 126. Less by a little: so what comes back from
 * the wire needs as many again. */
static inline uint32_t grid_choose_zero(float low, float high) {
    double bottom = low < 0 ? -(double)low : 0, top = high > 0 ? high : 0;
    double lesser = bottom < top ? bottom : top, step = (bottom + top) / 255;
    double steps = lesser > 0 ? lesser / step - 0x1p-13 - 0x1p-150 / step : 0, whole = grid_round(steps);
    if (whole < steps) whole += 1;
    return (uint32_t)(int32_t)(bottom > top ? 255 - whole : whole);
}

/* The parameters of a block of finite values. */
static inline void grid_choose(uint8_t *parameters, const struct pccl__codec *codec, float low, float high) {
    float peak = -low > high ? low : high, words[2] = {low, high};
    if (codec->format == PCCL_UINT8_ZERO_POINT || codec->format == PCCL_INT8_ZERO_POINT) {
        words[0] = peak;
        words[1] = f32_load(grid_choose_zero(low, high));
    } else if (codec->format >= PCCL_INT8_BLOCK) {
        words[0] = f32_load(f32_raw(peak) & 0x7fffffff);
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
        grid_of_largest(grid, first, 127, 1, 128);
        break;
    case PCCL_INT4_BLOCK:
        grid_of_largest(grid, first, 7, 1, 8);
        break;
    case PCCL_INT2_BLOCK:
        grid_of_largest(grid, first, 1, 1, 2);
        break;
    case PCCL_E4M3_BLOCK:
        grid_of_largest(grid, first, 448, 0x1p-9, 0);
        break;
    default: /* PCCL_E5M2_BLOCK */
        grid_of_largest(grid, first, 57344, 0x1p-16, 0);
        break;
    }
    grid->flip = (uint8_t)grid->zero; /* the zero of signed codes: so they are in two's complement */
}

#endif
