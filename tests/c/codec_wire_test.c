/* SPDX-License-Identifier: MIT
 *
 * codec_wire_test.c - the bytes of quantized payloads, which peers of other builds read, and the calls of pccl.h that
 * give them.
 */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/prng.h"
#include "check.h"
#include "shared_codec.h"

enum { COUNT = 4099 };

/* Eight values by hand, and a checksum of many: peers of other builds read these bytes. Whoever changes one of them
 * changes the protocol. */
static void test_wire(void) {
    static const float few[8] = {-1, 0, 0.25f, 3, -0.5f, 1, 2, -2};
    static const struct {
        pccl_format format;
        const char *hex;
    } wires[] = {
        {PCCL_TO_BFLOAT16, "80bf0000803e404000bf803f004000c0"},
        {PCCL_TO_FLOAT16, "00bc00000034004200b8003c004000c0"},
        {PCCL_UINT8_MIN_MAX, "000000c000004040 3366 73ff4c99cc00"},
        {PCCL_INT8_MIN_MAX, "000000c000004040 b3e6 f37fcc194c80"},
        {PCCL_UINT8_ZERO_POINT, "0000404066000000 3366 73ff4c99cc00"},
        {PCCL_INT8_ZERO_POINT, "0000404066000000 b3e6 f37fcc194c80"},
        {PCCL_INT8_BLOCK, "00004040 d6000b7feb2a55ab"},
        {PCCL_INT4_BLOCK, "00004040 0e712f b5"},
        {PCCL_INT2_BLOCK, "00004040 40d0"},
        {PCCL_E4M3_BLOCK, "00004040 f100617ee97179f9"},
        {PCCL_E5M2_BLOCK, "00004040 f5006d7bf17579f9"},
    };
    for (size_t i = 0; i < sizeof wires / sizeof wires[0]; i++) {
        uint8_t wire[32];
        char hex[2 * sizeof wire + 1] = "", want[sizeof hex] = "";
        struct pccl__codec codec = {.format = wires[i].format, .block = 32};
        struct pccl__fold fold = {.codec = &codec, .elements = 8, .wire = wire};
        fold.left = (struct pccl__coded){.values = few, .dtype = PCCL_FLOAT32};
        EXPECT(codec_levels[0].fold(&fold) == SIZE_MAX, "finite");
        for (size_t b = 0; b < pccl__codec_bytes(&codec, 8); b++) snprintf(hex + 2 * b, 3, "%02x", wire[b]);
        for (const char *c = wires[i].hex; *c; c++)
            if (*c != ' ') want[strlen(want)] = *c;
        EXPECT(strcmp(hex, want) == 0, "%s: %s, want %s", pccl_format_name(codec.format), hex, want);
    }
}

/* Of any kind of value, with random numbers and signs. */
static void test_checksums(void) {
    static const uint32_t want[PCCL_FORMAT_COUNT][3] = {
        /* to the nearest, at random, rotated */
        [PCCL_TO_BFLOAT16] = {0xc2d3e824, 0x99537c8c},
        [PCCL_TO_FLOAT16] = {0xbd8d3226, 0xdddf1d28},
        [PCCL_UINT8_MIN_MAX] = {0x49f96105, 0x34c92a85, 0x5a554e59},
        [PCCL_INT8_MIN_MAX] = {0x0a18ed1a, 0x7728a69a, 0x19b4c246},
        [PCCL_UINT8_ZERO_POINT] = {0x0a7dd14d, 0x672e22b1, 0x54239558},
        [PCCL_INT8_ZERO_POINT] = {0x499c5d52, 0x24cfaeae, 0x17c21947},
        [PCCL_INT8_BLOCK] = {0xdf9fb048, 0x15fc6322, 0x2912bd1c},
        [PCCL_INT4_BLOCK] = {0xb6cb44f7, 0x72aa0a27, 0xd423807c},
        [PCCL_INT2_BLOCK] = {0x08768d57, 0x7293d92b, 0x1131b177},
        [PCCL_E4M3_BLOCK] = {0x393d38e0, 0x0239321f, 0xfe80feea},
        [PCCL_E5M2_BLOCK] = {0x312408eb, 0x7ef2d27c, 0xc5cccd20},
    };
    static float values[COUNT];
    static uint8_t wire[2 * COUNT + 1024];
    uint64_t seed = 8;
    for (int i = 0; i < COUNT; i++) values[i] = (float)(int32_t)prng_next(&seed) * (prng_below(&seed, 50) ? 1e-6f : 1);
    for (int f = 1; f < PCCL_FORMAT_COUNT; f++)
        for (int how = 0; how < (pccl__format_of((pccl_format)f)->parameter_bytes == 0 ? 2 : 3); how++) {
            struct pccl__codec codec = {.format = (pccl_format)f, .block = 96, .seed = 11};
            codec.stochastic = how == 1;
            codec.rotate = how == 2;
            codec.propagate = true;
            struct pccl__fold fold = {.codec = &codec, .stream = 9, .elements = COUNT, .wire = wire};
            fold.left = (struct pccl__coded){.values = values, .dtype = PCCL_FLOAT32};
            codec_levels[0].fold(&fold);
            uint32_t is = codec_levels[0].crc32c(0, wire, pccl__codec_bytes(&codec, COUNT));
            EXPECT(is == want[f][how], "%s, form %d: 0x%08" PRIx32, pccl_format_name(codec.format), how, is);
        }
}

/* ---------------------------------------------------------------- the public face */

static void test_public(void) {
    static float values[COUNT], said[COUNT];
    static uint8_t wire[2 * COUNT + 1024];
    pccl_error error;
    uint64_t seed = 7;
    pccl_quantization q = {.format = PCCL_INT4_BLOCK};
    codec_fill(values, COUNT, KIND_NORMAL, &seed);
    EXPECT(pccl_quantized_bytes(&q, COUNT) == 5 * 4 + 2050, "%" PRIu64, pccl_quantized_bytes(&q, COUNT));
    EXPECT(pccl_quantize(&q, PCCL_FLOAT32, values, COUNT, wire, &error) == PCCL_OK, "%s", error.message);
    EXPECT(pccl_dequantize(&q, PCCL_FLOAT32, wire, COUNT, said, &error) == PCCL_OK, "%s", error.message);
    for (int i = 0; i < COUNT; i++) EXPECT(fabsf(said[i] - values[i]) < 0.6f, "value %d", i);
    values[77] = NAN;
    EXPECT(pccl_quantize(&q, PCCL_FLOAT32, values, COUNT, wire, &error) == PCCL_QUANTIZATION &&
               strstr(error.message, "value 77 of 4099 cannot be quantized to int4_block"),
           "%s", error.message);
    const struct {
        pccl_quantization quantization;
        pccl_dtype dtype;
        const char *says;
    } faults[] = {{{.format = PCCL_EXACT}, PCCL_FLOAT32, "no format"},
                  {{.format = (pccl_format)99}, PCCL_FLOAT32, "no format to quantize to: 99"},
                  {{.format = PCCL_INT8_BLOCK}, PCCL_INT32, "int32 cannot be quantized to int8_block"},
                  {{.format = PCCL_INT8_BLOCK, .block = 33}, PCCL_FLOAT32, "block is 33"},
                  {{.format = PCCL_INT8_BLOCK, .block = 65568}, PCCL_FLOAT32, "block is 65568"},
                  {{.format = PCCL_TO_FLOAT16, .block = 32}, PCCL_FLOAT32, "float16 is a cast"},
                  {{.format = PCCL_TO_BFLOAT16, .rotate = 1}, PCCL_FLOAT32, "bfloat16 is a cast"}};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        EXPECT(pccl_quantization_check(&faults[i].quantization, faults[i].dtype, &error) == PCCL_INVALID &&
                   strstr(error.message, faults[i].says),
               "%s", error.message);
    EXPECT(strcmp(pccl_format_name(PCCL_E5M2_BLOCK), "e5m2_block") == 0 &&
               strcmp(pccl_format_name((pccl_format)99), "?") == 0,
           "names");
}

int main(void) {
    codec_levels_find();
    test_wire();
    test_checksums();
    test_public();
    FINISH();
}
