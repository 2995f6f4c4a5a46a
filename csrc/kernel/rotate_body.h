/* SPDX-License-Identifier: MIT
 *
 * rotate_body.h - the random Hadamard transform of a tile and its inverse, for one CPU level: included by
 * kernel_body.h. Signs at random, then sums and differences of all: an outlier spreads over all values.
 *
 * A tile is cut into powers of two, the largest first. There are no square roots: of the 1/n that transform and
 * inverse need together the transform has all, so that no sum exceeds the largest value.
 */

/* The sums and differences of all stages are of values half the array apart, put side by side: in this form all stages
 * are alike, and vectors stay whole. The order of additions is the same at every level, too. */
static void hadamard(float *x, size_t count) {
    float other[TILE];
    float *from = x, *to = other;
    size_t half = count / 2;
    for (size_t done = 1; done < count; done *= 2) {
        INDEPENDENT
        for (size_t i = 0; i < half; i++) {
            float a = from[i], b = from[i + half];
            to[2 * i] = a + b;
            to[2 * i + 1] = a - b;
        }
        float *next = from;
        from = to;
        to = next;
    }
    if (from != x) memcpy(x, from, count * sizeof *x);
}

static size_t piece_of(size_t count) { return (size_t)1 << (63 - __builtin_clzll(count)); }

/* `index`: of the first value in its block. */
static void flip_signs(float *x, uint64_t seed, uint32_t index, size_t count) {
    uint64_t key = random_key(~seed, 0);
    INDEPENDENT
    for (size_t i = 0; i < count; i++)
        x[i] = f32_load(f32_raw(x[i]) ^ (random_bits(key, index + (uint32_t)i) & 0x80000000));
}

static void rotate(float *x, uint64_t seed, uint32_t index, size_t count) {
    flip_signs(x, seed, index, count);
    for (size_t start = 0, piece; start < count; start += piece) {
        piece = piece_of(count - start);
        float share = 1.0f / (float)piece;
        INDEPENDENT
        for (size_t i = start; i < start + piece; i++) x[i] *= share;
        hadamard(x + start, piece);
    }
}

/* With the errors of coding, sums may exceed the largest value, at most by a factor below TILE. */
static void rotate_back(float *x, uint64_t seed, uint32_t index, size_t count) {
    const float share = 1.0f / TILE;
    const int32_t largest = (int32_t)f32_raw(FLT_MAX / TILE);
    INDEPENDENT
    for (size_t i = 0; i < count; i++) x[i] *= share;
    for (size_t start = 0, piece; start < count; start += piece) {
        piece = piece_of(count - start);
        hadamard(x + start, piece);
    }
    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        int32_t magnitude = (int32_t)(f32_raw(x[i]) & 0x7fffffff);
        uint32_t bounded = (uint32_t)(magnitude < largest ? magnitude : largest);
        x[i] = f32_load(bounded | (f32_raw(x[i]) & 0x80000000)) * TILE;
    }
    flip_signs(x, seed, index, count);
}
