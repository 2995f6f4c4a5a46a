/* SPDX-License-Identifier: MIT */
#include "engine/descriptor.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "kernel/codec.h"

/* What is where in a stamp: collective u8, dtype u8, op u8, algorithm u8, then these. */
enum { ROOT = 4, COUNT = 8, SIZE = 16, FLAGS = 20, TENSORS = 22, FORMAT = 24, MANNER = 25, BLOCK = 26, SEED = 28 };
/* Of uneven parts that all members know, COUNT is the sum and ROOT a digest of their lengths; of tensors that are
 * reduced together as well, and TENSORS is how many more than one they are. */
enum { FLAG_DEFERRED = 1, FLAG_UNEVEN = 2, FLAG_PRIVATE = 4, FLAG_DETERMINISTIC = 8, FLAG_COALESCED = 16 };
/* Of what is quantized: how, the block in units of 32 values, and a digest of the seed where that counts. */
enum { MANNER_STOCHASTIC = 1, MANNER_PROPAGATE = 2, MANNER_ROTATE = 4, BLOCK_UNIT = 32 };

enum { DETAIL_TEXT = 256 };

static uint32_t digest_of(const uint64_t *begins, uint32_t size) {
    uint8_t digest[16];
    pccl_hash128(begins, ((size_t)size + 1) * sizeof *begins, digest);
    return get_u32(digest);
}

static void pack_quantization(uint8_t *b, const pccl_quantization *quantization) {
    if (quantization->format == PCCL_EXACT) return;
    struct pccl__codec codec = pccl__codec_of(quantization);
    bool seeded = codec.stochastic || codec.rotate;
    uint8_t digest[16];
    pccl_hash128(&codec.seed, sizeof codec.seed, digest);
    b[FORMAT] = (uint8_t)codec.format;
    b[MANNER] = (uint8_t)((codec.stochastic ? MANNER_STOCHASTIC : 0) | (codec.propagate ? MANNER_PROPAGATE : 0) |
                          (codec.rotate ? MANNER_ROTATE : 0));
    put_u16(b + BLOCK, (uint16_t)(codec.block / BLOCK_UNIT));
    put_u32(b + SEED, seeded ? get_u32(digest) : 0);
}

struct pccl__stamp pccl__stamp_pack(const pccl_call *call, const struct pccl__layout *layout,
                                    pccl_algorithm algorithm) {
    struct pccl__stamp stamp = {{0}};
    uint8_t *b = stamp.bytes;
    bool has_data = pccl__has_data(call->collective), private = pccl__parts_are_private(call->collective);
    b[0] = (uint8_t)(pccl__is_pair(call->collective) ? PCCL_SEND : call->collective);
    b[1] = has_data ? (uint8_t)call->dtype : 0;
    b[2] = pccl__reduces(call->collective) ? (uint8_t)call->op : 0;
    b[3] = (uint8_t)algorithm;
    put_u32(b + ROOT, pccl__has_root(call->collective) ? call->root : 0);
    put_u64(b + COUNT, has_data ? call->count : 0);
    put_u32(b + SIZE, layout->size);
    uint16_t flags = call->flags & PCCL_DEFERRED ? FLAG_DEFERRED : 0;
    if (call->flags & PCCL_DETERMINISTIC) flags |= FLAG_DETERMINISTIC;
    if (layout->uneven) {
        const uint64_t *begins = layout->input_begins ? layout->input_begins : layout->output_begins;
        put_u64(b + COUNT, private ? 0 : begins[layout->size]);
        if (!private) put_u32(b + ROOT, digest_of(begins, layout->size));
        flags |= FLAG_UNEVEN | (private ? FLAG_PRIVATE : 0);
    }
    put_u16(b + FLAGS, flags);
    if (has_data) pack_quantization(b, &call->quantization);
    return stamp;
}

void pccl__stamp_part(struct pccl__stamp *stamp, uint64_t elements) { put_u64(stamp->bytes + COUNT, elements); }

void pccl__stamp_tensors(struct pccl__stamp *stamp, const uint64_t *begins, uint32_t count) {
    uint8_t *b = stamp->bytes;
    put_u32(b + ROOT, digest_of(begins, count));
    put_u16(b + FLAGS, get_u16(b + FLAGS) | FLAG_COALESCED);
    put_u16(b + TENSORS, (uint16_t)(count - 1));
}

static void detail_of(const struct pccl__stamp *stamp, char *text, size_t bytes) {
    const uint8_t *b = stamp->bytes;
    pccl_collective collective = (pccl_collective)b[0];
    uint32_t flags = get_u16(b + FLAGS);
    text[0] = 0;
    if (flags & FLAG_COALESCED) {
        uint32_t tensors = get_u16(b + TENSORS) + 1;
        snprintf(text, bytes, " in %u tensor%s #%08x", tensors, tensors == 1 ? "" : "s", get_u32(b + ROOT));
    }
    size_t used = strlen(text);
    if (pccl__reduces(collective))
        used += (size_t)snprintf(text + used, bytes - used, ", op=%s", pccl_reduce_op_name((pccl_reduce_op)b[2]));
    if (pccl__has_root(collective)) used += (size_t)snprintf(text + used, bytes - used, ", root=%u", get_u32(b + ROOT));
    if (flags & FLAG_PRIVATE)
        used += (size_t)snprintf(text + used, bytes - used, ", uneven");
    else if (flags & FLAG_UNEVEN)
        used += (size_t)snprintf(text + used, bytes - used, ", uneven counts #%08x", get_u32(b + ROOT));
    if (!pccl__is_pair(collective)) /* that has but one */
        used +=
            (size_t)snprintf(text + used, bytes - used, ", algorithm=%s", pccl_algorithm_name((pccl_algorithm)b[3]));
    if (b[FORMAT] == PCCL_EXACT) return;
    used += (size_t)snprintf(text + used, bytes - used, ", quantization=%s", pccl_format_name((pccl_format)b[FORMAT]));
    if (get_u16(b + BLOCK))
        used += (size_t)snprintf(text + used, bytes - used, ", block=%u", get_u16(b + BLOCK) * BLOCK_UNIT);
    used += (size_t)snprintf(text + used, bytes - used, "%s%s%s", b[MANNER] & MANNER_STOCHASTIC ? ", stochastic" : "",
                             b[MANNER] & MANNER_PROPAGATE ? ", nan=propagate" : "",
                             b[MANNER] & MANNER_ROTATE ? ", rotated" : "");
    if (get_u32(b + SEED)) snprintf(text + used, bytes - used, ", seed #%08x", get_u32(b + SEED));
}

void pccl__stamp_text(const struct pccl__stamp *stamp, bool receives, char text[PCCL__DESCRIPTOR_TEXT]) {
    const uint8_t *b = stamp->bytes;
    unsigned known = b[0] < PCCL_COLLECTIVE_COUNT; /* the bytes may come from the wire */
    if (!known || !pccl__has_data((pccl_collective)b[0])) {
        snprintf(text, PCCL__DESCRIPTOR_TEXT, "%s()", pccl_collective_name((pccl_collective)b[0]));
        return;
    }
    char detail[DETAIL_TEXT];
    detail_of(stamp, detail, sizeof detail);
    bool pair = pccl__is_pair((pccl_collective)b[0]);
    uint32_t flags = get_u16(b + FLAGS);
    snprintf(text, PCCL__DESCRIPTOR_TEXT, "%s(%s[%llu]%s%s%s)",
             pccl_collective_name(pair && receives ? PCCL_RECV : (pccl_collective)b[0]),
             pccl_dtype_name((pccl_dtype)b[1]), (unsigned long long)get_u64(b + COUNT), detail,
             flags & FLAG_DETERMINISTIC ? ", deterministic" : "", flags & FLAG_DEFERRED ? ", commit=deferred" : "");
}

uint64_t pccl__stamp_fingerprint(const struct pccl__stamp *stamp) {
    uint8_t digest[16];
    pccl_hash128(stamp->bytes, sizeof stamp->bytes, digest);
    return get_u64(digest);
}

bool pccl__stamp_agree(const struct pccl__stamp *a, const struct pccl__stamp *b) {
    struct pccl__stamp left = *a, right = *b;
    if (get_u16(left.bytes + FLAGS) & get_u16(right.bytes + FLAGS) & FLAG_PRIVATE) {
        pccl__stamp_part(&left, 0);
        pccl__stamp_part(&right, 0);
    }
    return memcmp(left.bytes, right.bytes, sizeof left.bytes) == 0;
}
