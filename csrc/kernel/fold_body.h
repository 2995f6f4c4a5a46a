/* SPDX-License-Identifier: MIT
 *
 * fold_body.h - pccl__fold_fn for one CPU level (codec.h): included by kernel_body.h.
 *
 * A tile of results is computed into the cache, its block's grid chosen, then encoded. Blocks that are longer than a
 * tile are computed twice, once for their range: their inputs are in the cache of the second level by then.
 */

static void load_f16(float *x, const any_u16 *from, size_t count) {
    size_t i = 0;
#ifdef F16_LANES
    for (; count - i >= F16_LANES; i += F16_LANES) {
        f16_vector vector = f16_vector_load(from + i);
        memcpy(x + i, &vector, sizeof vector);
    }
#endif
    for (; i < count; i++) x[i] = f16_load(from[i]);
}

static void store_f16(any_u16 *to, const float *x, size_t count) {
    size_t i = 0;
#ifdef F16_LANES
    for (; count - i >= F16_LANES; i += F16_LANES) {
        f16_vector vector;
        memcpy(&vector, x + i, sizeof vector);
        f16_vector_store(to + i, vector);
    }
#endif
    for (; i < count; i++) to[i] = f16_store(x[i]);
}

#define CONVERT(NAME, TO, FROM, result)                                                                                \
    static void NAME(TO *to, const FROM *from, size_t count) {                                                         \
        INDEPENDENT                                                                                                    \
        for (size_t i = 0; i < count; i++) {                                                                           \
            FROM value = from[i];                                                                                      \
            to[i] = (result);                                                                                          \
        }                                                                                                              \
    }
CONVERT(load_bf16, float, any_u16, f32_load((uint32_t)value << 16))
CONVERT(load_f64, float, any_u64, (float)f64_load(value))
CONVERT(store_bf16, any_u16, float, (uint16_t)(bf16_round(value) >> 16))
CONVERT(store_f32, any_u32, float, f32_store(value))
CONVERT(store_f64, any_u64, float, f64_store(value))

/* What is read next, while this tile is worked on: memory would idle meanwhile. Also behind an array's end, where
 * nothing happens. */
static void fetch_ahead(const void *values, size_t bytes) {
    uintptr_t from = (uintptr_t)values + bytes;
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch((const void *)(from + i));
}

static void load(float *x, pccl_dtype dtype, const void *values, size_t index, size_t count) {
    fetch_ahead((const uint8_t *)values + index * pccl_dtype_bytes(dtype), count * pccl_dtype_bytes(dtype));
    if (dtype == PCCL_FLOAT16)
        load_f16(x, (const any_u16 *)values + index, count);
    else if (dtype == PCCL_BFLOAT16)
        load_bf16(x, (const any_u16 *)values + index, count);
    else if (dtype == PCCL_FLOAT64)
        load_f64(x, (const any_u64 *)values + index, count);
    else
        memcpy(x, (const any_u32 *)values + index, count * sizeof *x);
}

static void store(pccl_dtype dtype, void *values, size_t index, const float *x, size_t count) {
    if (dtype == PCCL_FLOAT16)
        store_f16((any_u16 *)values + index, x, count);
    else if (dtype == PCCL_BFLOAT16)
        store_bf16((any_u16 *)values + index, x, count);
    else if (dtype == PCCL_FLOAT64)
        store_f64((any_u64 *)values + index, x, count);
    else
        store_f32((any_u32 *)values + index, x, count);
}

/* x = x op y, element by element. */
static void combine(float *x, const float *y, size_t count, pccl_reduce_op op) {
    if (op == PCCL_MIN) {
        INDEPENDENT
        for (size_t i = 0; i < count; i++) x[i] = f32_load(f32_min(f32_raw(x[i]), f32_raw(y[i])));
    } else if (op == PCCL_MAX) {
        INDEPENDENT
        for (size_t i = 0; i < count; i++) x[i] = f32_load(f32_max(f32_raw(x[i]), f32_raw(y[i])));
    } else {
        INDEPENDENT
        for (size_t i = 0; i < count; i++) x[i] += y[i];
    }
}

static void divide(float *x, float divisor, size_t count) {
    INDEPENDENT
    for (size_t i = 0; i < count; i++) x[i] /= divisor;
}

static void add_errors(float *errors, const float *result, const float *said, float scale, size_t count) {
    any_u32 *sums = (any_u32 *)errors;
    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        float error = (result[i] - said[i]) * scale;
        sums[i] = f32_store(f32_load(sums[i]) + (error - error == 0 ? error : 0));
    }
}

static void fill_nan(float *x, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] = f32_load(F32_NAN);
}

/* The lowest and the highest value, in the order of f32_order: infinities and NaNs are outside the finite. */
struct range {
    int32_t low, high;
};

static const struct range NO_RANGE = {INT32_MAX, INT32_MIN};

static struct range range_of(const float *x, size_t count, struct range range) {
    int32_t low = range.low, high = range.high;
    for (size_t i = 0; i < count; i++) {
        int32_t order = f32_order(f32_raw(x[i]));
        low = order < low ? order : low;
        high = order > high ? order : high;
    }
    return (struct range){low, high};
}

static bool range_is_finite(struct range range) { return range.low > -0x7f800001 && range.high < 0x7f800000; }
static float range_end(int32_t order) { return f32_load((uint32_t)f32_order((uint32_t)order)); }

/* ---------------------------------------------------------------- blocks */

/* One block of a fold. Of casts, which have none: a tile. */
struct fold_block {
    const struct pccl__fold *fold;
    size_t start, count;
    size_t codes; /* where they begin on the wire */
    bool cast;
    struct grid left, right;
};

static pccl_dtype cast_dtype(const struct pccl__codec *codec) {
    return codec->format == PCCL_TO_FLOAT16 ? PCCL_FLOAT16 : PCCL_BFLOAT16;
}

static const uint8_t *block_parameters(const struct fold_block *block, const uint8_t *wire) {
    const struct pccl__codec *codec = block->fold->codec;
    return wire + block->start / codec->block * pccl__format_of(codec->format)->parameter_bytes;
}

/* Where the codes of a tile are. */
static size_t tile_codes(const struct fold_block *block, size_t offset) {
    return block->codes + (block->start + offset) / 8 * pccl__format_of(block->fold->codec->format)->bits;
}

/* What codes say, as decoders see it. `offset`: of the tile in its block. */
static void say(float *x, const struct fold_block *block, const struct grid *grid, const uint8_t *wire, size_t offset,
                size_t count) {
    const struct pccl__codec *codec = block->fold->codec;
    if (block->cast) {
        load(x, cast_dtype(codec), wire, block->start + offset, count);
    } else if (grid->nan) {
        fill_nan(x, count);
    } else {
        decode_tile(x, wire + tile_codes(block, offset), count, grid, codec);
        if (codec->rotate) rotate_back(x, codec->seed, (uint32_t)offset, count);
    }
}

static void operand(float *x, const struct fold_block *block, const struct pccl__coded *coded, const struct grid *grid,
                    size_t offset, size_t count) {
    if (coded->wire)
        say(x, block, grid, coded->wire, offset, count);
    else
        load(x, coded->dtype, coded->values, block->start + offset, count);
}

static void result_of(float *x, const struct fold_block *block, size_t offset, size_t count) {
    const struct pccl__fold *fold = block->fold;
    float y[TILE];
    operand(x, block, &fold->left, &block->left, offset, count);
    if (fold->right.wire || fold->right.values) {
        operand(y, block, &fold->right, &block->right, offset, count);
        combine(x, y, count, fold->op);
    }
    if (fold->divisor != 0) divide(x, fold->divisor, count);
}

/* The first that is not finite of a tile known to have one. */
static size_t first_infinite(const float *x) {
    size_t i = 0;
    while (x[i] - x[i] == 0) i++;
    return i;
}

static void give(const struct fold_block *block, size_t offset, const float *result, const float *said, size_t count) {
    const struct pccl__fold *fold = block->fold;
    float scale = fold->divisor != 0 ? fold->divisor : 1;
    if (fold->errors) add_errors(fold->errors + block->start + offset, result, said, scale, count);
    if (fold->values) store(fold->dtype, fold->values, block->start + offset, said, count);
}

/* Encodes a tile that was computed; returns as pccl__fold_fn. */
static size_t cast_tile(const struct fold_block *block, float *x) {
    const struct pccl__fold *fold = block->fold;
    pccl_dtype dtype = cast_dtype(fold->codec);
    float said[TILE], numbers[TILE];
    any_u16 *codes = (any_u16 *)fold->wire + block->start;
    if (!fold->codec->stochastic) {
        store(dtype, codes, 0, x, block->count);
    } else {
        random_numbers(numbers, fold->codec->seed, fold->stream + block->start, block->count);
        (dtype == PCCL_FLOAT16 ? cast_f16_at_random : cast_bf16_at_random)(codes, x, numbers, block->count);
    }
    say(said, block, NULL, fold->wire, 0, block->count);
    if (!fold->codec->propagate && !range_is_finite(range_of(said, block->count, NO_RANGE)))
        return block->start + first_infinite(said);
    give(block, 0, x, said, block->count);
    return SIZE_MAX;
}

static void encode_block(const struct fold_block *block, const struct grid *grid, float *x) {
    const struct pccl__fold *fold = block->fold;
    const struct pccl__codec *codec = fold->codec;
    float said[TILE], numbers[TILE], exact[TILE], *result = x;
    for (size_t offset = 0; offset < block->count; offset += TILE) {
        size_t count = block->count - offset < TILE ? block->count - offset : TILE;
        uint8_t *codes = fold->wire + tile_codes(block, offset);
        if (fold->errors && codec->rotate) { /* once more: codes may come to lie where those of an operand are */
            result = exact;
            result_of(result, block, offset, count);
        }
        if (block->count > TILE) {
            result_of(x, block, offset, count);
            if (codec->rotate && !grid->nan) rotate(x, codec->seed, (uint32_t)offset, count);
        }
        if (grid->nan) {
            memset(codes, 0, (count * pccl__format_of(codec->format)->bits + 7) / 8);
        } else {
            if (codec->stochastic) random_numbers(numbers, codec->seed, fold->stream + block->start + offset, count);
            encode_tile(codes, x, numbers, count, grid, codec);
        }
        if (!fold->values && !fold->errors) continue;
        say(said, block, grid, fold->wire, offset, count);
        give(block, offset, result, said, count);
    }
}

/* As pccl__fold_fn. The parameters are written last: they may lie where those of an operand are. */
static size_t fold_block(const struct fold_block *block) {
    const struct pccl__fold *fold = block->fold;
    const struct pccl__codec *codec = fold->codec;
    uint8_t parameters[PARAMETER_BYTES_MAX];
    struct range range = NO_RANGE;
    struct grid grid;
    float x[TILE];
    bool finite = true;
    for (size_t offset = 0; offset < block->count; offset += TILE) {
        size_t count = block->count - offset < TILE ? block->count - offset : TILE;
        result_of(x, block, offset, count);
        if (!fold->wire) {
            bool sums = fold->right.wire || fold->right.values;
            if (sums && !codec->propagate && !range_is_finite(range_of(x, count, NO_RANGE)))
                return block->start + offset + first_infinite(x);
            give(block, offset, x, x, count);
        } else if (block->cast)
            return cast_tile(block, x);
        else {
            struct range tile = range_of(x, count, NO_RANGE);
            if (!range_is_finite(tile)) {
                if (!codec->propagate) return block->start + offset + first_infinite(x);
                finite = false;
            } else if (codec->rotate) {
                rotate(x, codec->seed, (uint32_t)offset, count);
                tile = range_of(x, count, NO_RANGE);
            }
            if (tile.low < range.low) range.low = tile.low;
            if (tile.high > range.high) range.high = tile.high;
        }
    }
    if (!fold->wire) return SIZE_MAX;
    if (finite)
        grid_choose(parameters, codec, range_end(range.low), range_end(range.high));
    else
        grid_choose_nan(parameters);
    grid_read(&grid, codec, parameters);
    encode_block(block, &grid, x);
    memcpy((uint8_t *)block_parameters(block, fold->wire), parameters, pccl__format_of(codec->format)->parameter_bytes);
    return SIZE_MAX;
}

static size_t fold_blocks(const struct pccl__fold *fold) {
    const struct pccl__codec *codec = fold->codec;
    struct fold_block block = {.fold = fold, .cast = pccl__format_of(codec->format)->parameter_bytes == 0};
    size_t longest = block.cast ? TILE : codec->block, bad = SIZE_MAX;
    uint64_t modes = fp_env_enter();
    block.codes = (fold->elements / codec->block + (fold->elements % codec->block != 0)) *
                  pccl__format_of(codec->format)->parameter_bytes;
    for (; block.start < fold->elements && bad == SIZE_MAX; block.start += block.count) {
        size_t left = fold->elements - block.start;
        block.count = left < longest ? left : longest;
        if (!block.cast && fold->left.wire) grid_read(&block.left, codec, block_parameters(&block, fold->left.wire));
        if (!block.cast && fold->right.wire) grid_read(&block.right, codec, block_parameters(&block, fold->right.wire));
        bad = fold_block(&block);
    }
    fp_env_leave(modes);
    return bad;
}
