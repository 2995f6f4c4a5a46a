/* SPDX-License-Identifier: MIT
 *
 * codec.c - quantization as users give it: formats and their sizes, checks, and calls that code a whole array.
 */
#include "kernel/codec.h"

#include <inttypes.h>
#include <math.h>

#include "base/status.h"
#include "kernel/kernel.h"

enum { BLOCK_DEFAULT = 1024, BLOCK_UNIT = 32, BLOCK_MAX = 65536 };

static const struct pccl__format formats[PCCL_FORMAT_COUNT] = {
    [PCCL_EXACT] = {"exact", 0, 0},
    [PCCL_TO_BFLOAT16] = {"bfloat16", 16, 0},
    [PCCL_TO_FLOAT16] = {"float16", 16, 0},
    [PCCL_UINT8_MIN_MAX] = {"uint8_min_max", 8, 8},
    [PCCL_INT8_MIN_MAX] = {"int8_min_max", 8, 8},
    [PCCL_UINT8_ZERO_POINT] = {"uint8_zero_point", 8, 8},
    [PCCL_INT8_ZERO_POINT] = {"int8_zero_point", 8, 8},
    [PCCL_INT8_BLOCK] = {"int8_block", 8, 4},
    [PCCL_INT4_BLOCK] = {"int4_block", 4, 4},
    [PCCL_INT2_BLOCK] = {"int2_block", 2, 4},
    [PCCL_E4M3_BLOCK] = {"e4m3_block", 8, 4},
    [PCCL_E5M2_BLOCK] = {"e5m2_block", 8, 4},
};

const struct pccl__format *pccl__format_of(pccl_format format) { return &formats[format]; }

/* Enums may arrive from the wire: any number is allowed. */
const char *pccl_format_name(pccl_format format) {
    return (unsigned)format < PCCL_FORMAT_COUNT ? formats[format].name : "?";
}

struct pccl__codec pccl__codec_of(const pccl_quantization *quantization) {
    return (struct pccl__codec){
        .format = quantization->format,
        .block = quantization->block ? quantization->block : BLOCK_DEFAULT,
        .stochastic = quantization->stochastic != 0,
        .propagate = quantization->propagate != 0,
        .rotate = quantization->rotate != 0,
        .seed = quantization->seed,
    };
}

size_t pccl__codec_bytes(const struct pccl__codec *codec, size_t elements) {
    const struct pccl__format *format = &formats[codec->format];
    size_t blocks = elements / codec->block + (elements % codec->block != 0);
    size_t codes = elements / 8 * format->bits + (elements % 8 * format->bits + 7) / 8;
    return blocks * format->parameter_bytes + codes;
}

uint32_t pccl__codec_unit(const struct pccl__codec *codec) {
    return formats[codec->format].parameter_bytes ? codec->block : BLOCK_UNIT;
}

pccl_status pccl_quantization_check(const pccl_quantization *quantization, pccl_dtype dtype, pccl_error *error) {
    pccl_format format = quantization->format;
    uint32_t block = quantization->block;
    if ((unsigned)format >= PCCL_FORMAT_COUNT || format == PCCL_EXACT)
        return pccl__fail(error, PCCL_INVALID, "no format to quantize to: %d (there are 1 to %d)", (int)format,
                          PCCL_FORMAT_COUNT - 1);
    if (dtype != PCCL_FLOAT16 && dtype != PCCL_BFLOAT16 && dtype != PCCL_FLOAT32 && dtype != PCCL_FLOAT64)
        return pccl__fail(error, PCCL_INVALID,
                          "%s cannot be quantized to %s: only float16, bfloat16, float32 and float64 can",
                          pccl_dtype_name(dtype), pccl_format_name(format));
    if (formats[format].parameter_bytes == 0 && (block || quantization->rotate))
        return pccl__fail(error, PCCL_INVALID, "%s is a cast, which has no blocks: block must be 0, and rotate off",
                          pccl_format_name(format));
    if (block % BLOCK_UNIT || block > BLOCK_MAX)
        return pccl__fail(error, PCCL_INVALID, "block is %" PRIu32 ": it must be a multiple of %d, at most %d", block,
                          BLOCK_UNIT, BLOCK_MAX);
    return PCCL_OK;
}

uint64_t pccl_quantized_bytes(const pccl_quantization *quantization, uint64_t count) {
    struct pccl__codec codec = pccl__codec_of(quantization);
    return (unsigned)codec.format < PCCL_FORMAT_COUNT ? pccl__codec_bytes(&codec, (size_t)count) : 0;
}

pccl_status pccl_quantize(const pccl_quantization *quantization, pccl_dtype dtype, const void *values, uint64_t count,
                          void *wire, pccl_error *error) {
    pccl_status status = pccl_quantization_check(quantization, dtype, error);
    if (status) return status;
    struct pccl__codec codec = pccl__codec_of(quantization);
    struct pccl__fold fold = {
        .codec = &codec, .elements = (size_t)count, .left = {.values = values, .dtype = dtype}, .wire = wire};
    size_t bad = pccl__kernels()->fold(&fold);
    if (bad == SIZE_MAX) return PCCL_OK;
    return pccl__fail(error, PCCL_QUANTIZATION,
                      "value %zu of %" PRIu64 " cannot be quantized to %s: it is not finite%s", bad, count,
                      pccl_format_name(codec.format), formats[codec.format].parameter_bytes ? "" : " or too large");
}

pccl_status pccl_dequantize(const pccl_quantization *quantization, pccl_dtype dtype, const void *wire, uint64_t count,
                            void *values, pccl_error *error) {
    pccl_status status = pccl_quantization_check(quantization, dtype, error);
    if (status) return status;
    struct pccl__codec codec = pccl__codec_of(quantization);
    struct pccl__fold fold = {
        .codec = &codec, .elements = (size_t)count, .left = {.wire = wire}, .values = values, .dtype = dtype};
    pccl__kernels()->fold(&fold);
    return PCCL_OK;
}
