/* SPDX-License-Identifier: MIT */
#include "engine/piece.h"

#include <string.h>

#include "base/bits.h"

enum { SMALLEST_SEGMENT = 64 * 1024, LARGEST_SEGMENT = 256 * 1024, SEGMENTS_PER_CHUNK = 4 };

/* ---------------------------------------------------------------- how long, how many */

bool pccl__pieces_are_private(const struct pccl_operation *op) {
    return op->layout.uneven && pccl__parts_are_private(op->call.collective);
}

/* Who shares something alone with one other learns of a disagreement only from a transfer, and of a send at all, so
 * there are empty ones, too. Lengths that go first say as much. A barrier has nothing else. */
static bool moves_when_empty(const struct pccl_operation *op) {
    bool alone = pccl__pieces_are_private(op) || pccl__is_pair(op->call.collective);
    return !op->lengths_first && (alone || op->call.collective == PCCL_BARRIER);
}

/* What others say is believed only as far as it can be counted. */
static uint64_t passing(const struct pccl_operation *op, uint32_t chunk) {
    uint64_t pieces_most = UINT32_MAX / ((uint64_t)op->schedule->receives_count + 1);
    return min_u64(pccl__length_of(op, chunk), pieces_most * op->segment_elements);
}

static struct pccl__place place_of(const struct pccl_operation *op, uint32_t chunk) {
    struct pccl__place place = pccl__layout_place(&op->layout, chunk);
    bool passes = place.input == PCCL__NOWHERE && place.result == PCCL__NOWHERE;
    if (op->lengths_first && passes) place.elements = passing(op, chunk);
    return place;
}

/* Several segments let a chunk's way in, its arithmetic and its way out overlap, but only on as many cores. Where
 * members share these, each segment more is one more time that a core changes hands, and too small to be fetched from
 * where it lies. */
static uint64_t usual_segment(uint64_t chunk_bytes, bool crowded) {
    uint64_t share = crowded ? chunk_bytes : chunk_bytes / SEGMENTS_PER_CHUNK;
    return min_u64(max_u64(share, SMALLEST_SEGMENT), LARGEST_SEGMENT);
}

static pccl_status cut_tensors(struct pccl_operation *op) {
    pccl_status status = pccl__cuts_new(op->tensors, &op->layout, op->segment_elements, &op->cuts);
    if (status == PCCL_OK) op->segments = op->cuts->most;
    return status;
}

pccl_status pccl__pieces_cut(struct pccl_operation *op, uint32_t segment_bytes, bool crowded) {
    uint64_t elements = pccl__layout_longest(&op->layout), segment = segment_bytes;
    if (!segment && pccl__pieces_are_private(op)) segment = LARGEST_SEGMENT;
    if (!segment) segment = usual_segment(elements * op->element_bytes, crowded);
    if (op->call.collective == PCCL_BARRIER) segment = op->element_bytes; /* empty ones need no more room */
    uint64_t unit = max_u64(op->layout.unit, 1);
    op->segment_elements = div_ceil(max_u64(segment / op->element_bytes, 1), unit) * unit;
    op->segments = (uint32_t)max_u64(div_ceil(elements, op->segment_elements), moves_when_empty(op));
    if (op->lengths_first) op->segments = 1;
    if (op->schedule->plan.steps_count == 0) op->segments = 0;
    return op->tensors && op->segments > 0 ? cut_tensors(op) : PCCL_OK;
}

/* What its values are on a link. */
static uint32_t wire_bytes(const struct pccl_operation *op, uint64_t elements) {
    return (uint32_t)(op->coding.on ? pccl__codec_bytes(&op->coding.codec, elements) : elements * op->element_bytes);
}

static struct pccl__piece cut_piece(const struct pccl_operation *op, uint32_t chunk, uint32_t segment) {
    struct pccl__piece piece = {.chunk = chunk};
    uint32_t index = (uint32_t)min_u64((uint64_t)op->cuts->first[chunk] + segment, op->cuts->first[chunk + 1]);
    piece.moves = index < op->cuts->first[chunk + 1];
    piece.place.input = piece.place.result = op->cuts->at[index];
    piece.place.elements = piece.moves ? op->cuts->at[index + 1] - op->cuts->at[index] : 0;
    piece.bytes = wire_bytes(op, piece.place.elements);
    return piece;
}

struct pccl__piece pccl__piece_of(const struct pccl_operation *op, uint32_t chunk, uint32_t segment) {
    if (op->cuts) return cut_piece(op, chunk, segment);
    struct pccl__piece piece = {.chunk = chunk, .place = {0, PCCL__NOWHERE, PCCL__NOWHERE}};
    if (op->lengths_first && segment == 0) {
        piece.bytes = PCCL__LENGTH_BYTES;
        piece.moves = piece.is_length = true;
        return piece;
    }
    piece.place = place_of(op, chunk);
    uint64_t before = (segment - op->lengths_first) * op->segment_elements;
    uint64_t skipped = min_u64(before, piece.place.elements);
    piece.place.elements = min_u64(piece.place.elements - skipped, op->segment_elements);
    if (piece.place.input != PCCL__NOWHERE) piece.place.input += skipped;
    if (piece.place.result != PCCL__NOWHERE) piece.place.result += skipped;
    piece.bytes = wire_bytes(op, piece.place.elements);
    piece.moves = piece.bytes > 0 || (segment == 0 && moves_when_empty(op));
    return piece;
}

uint32_t pccl__pieces_of(const struct pccl_operation *op, uint32_t chunk) {
    if (op->cuts) return op->cuts->first[chunk + 1] - op->cuts->first[chunk];
    uint64_t pieces = div_ceil(place_of(op, chunk).elements, op->segment_elements);
    return (uint32_t)max_u64(pieces, moves_when_empty(op));
}

/* ---------------------------------------------------------------- where */

/* `memory` is all that a buffer has, unless that lies in tensors. */
static uint8_t *within(const struct pccl_operation *op, const uint8_t *memory, uint64_t place) {
    return memory && place != PCCL__NOWHERE ? (uint8_t *)(uintptr_t)memory + place * op->element_bytes : NULL;
}

bool pccl__piece_next(const struct pccl_operation *op, struct pccl__piece piece, struct pccl__stretch *stretch) {
    const uint8_t *input = within(op, op->input, piece.place.input);
    uint8_t *result = within(op, op->result, piece.place.result);
    uint64_t begin = piece.place.input, elements = piece.place.elements;
    if (op->tensors) {
        if (!pccl__tensors_next(op->tensors, begin, begin + elements, stretch)) return false;
        if (input) stretch->input = input + stretch->offset;
        if (result) stretch->result = result + stretch->offset;
        return true;
    }
    if (stretch->elements || elements == 0) return false;
    *stretch = (struct pccl__stretch){.input = input, .result = result, .elements = elements};
    return true;
}

/* The stretch that all of a piece is; a zeroed one where it is several, or empty. */
static struct pccl__stretch whole(const struct pccl_operation *op, struct pccl__piece piece) {
    struct pccl__stretch stretch = {0};
    bool found = pccl__piece_next(op, piece, &stretch) && stretch.elements == piece.place.elements;
    return found ? stretch : (struct pccl__stretch){0};
}

const uint8_t *pccl__piece_input(const struct pccl_operation *op, struct pccl__piece piece) {
    if (piece.is_length) return pccl__length_at(op, piece.chunk);
    if (op->tensors && !op->input) return whole(op, piece).input;
    return within(op, op->input, piece.place.input);
}

uint8_t *pccl__piece_result(const struct pccl_operation *op, struct pccl__piece piece) {
    if (op->tensors && !op->result) return whole(op, piece).result;
    return within(op, op->result, piece.place.result);
}

/* ---------------------------------------------------------------- lengths that go first */

size_t pccl__lengths_bytes(const struct pccl_operation *op) {
    return op->lengths_first ? (size_t)op->schedule->plan.chunks * PCCL__LENGTH_BYTES : 0;
}

uint8_t *pccl__length_at(const struct pccl_operation *op, uint32_t chunk) {
    return op->lengths + (size_t)chunk * PCCL__LENGTH_BYTES;
}

uint64_t pccl__length_of(const struct pccl_operation *op, uint32_t chunk) {
    return get_u64(pccl__length_at(op, chunk));
}

void pccl__lengths_begin(struct pccl_operation *op) {
    memset(op->lengths, 0, pccl__lengths_bytes(op));
    for (uint32_t chunk = 0; op->lengths_first && chunk < op->schedule->plan.chunks; chunk++) {
        struct pccl__place place = pccl__layout_place(&op->layout, chunk);
        if (place.input != PCCL__NOWHERE) put_u64(pccl__length_at(op, chunk), place.elements);
    }
}

bool pccl__length_fits(const struct pccl_operation *op, uint32_t chunk) {
    struct pccl__place place = pccl__layout_place(&op->layout, chunk);
    return place.result == PCCL__NOWHERE || place.elements == pccl__length_of(op, chunk);
}

void pccl__lengths_end(struct pccl_operation *op) {
    const struct pccl__plan *plan = &op->schedule->plan;
    uint32_t most = 0;
    for (uint32_t i = 0; i < plan->steps_count; i++)
        most = (uint32_t)max_u64(most, pccl__pieces_of(op, plan->steps[i].chunk));
    op->segments = 1 + most;
}
