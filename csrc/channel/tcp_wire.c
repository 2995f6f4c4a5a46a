/* SPDX-License-Identifier: MIT
 *
 * tcp_wire.c - the byte layout of greetings and frames. One table of offsets per kind of message, used both ways.
 */
#include "channel/tcp_wire.h"

#include "base/bits.h"
#include "kernel/kernel.h"

enum {
    HEADER_MAGIC = 0x4650 /* "PF" */,
    HELLO_MAGIC = 0x48434350 /* "PCCH" */,
    ANSWER_MAGIC = 0x41434350 /* "PCCA" */
};

/* Where things stand in a frame header. */
enum {
    AT_MAGIC = 0,
    AT_KIND = 2,
    AT_FLAGS = 3,
    AT_CRC = 4,
    AT_ACK = 8,
    AT_CONTROL_ACK = 16,
    AT_RELEASED = 24,
    AT_NUMBER = 32,
    AT_EPOCH = 40,
    AT_TAG = 48,
    AT_SCOPE = 56,
    AT_SEQUENCE = 64,
    AT_STEP = 68,
    AT_SEGMENT = 72,
    AT_STAMP = 76,
    AT_BYTES = 108,
    AT_OFFSET = 112,
    AT_PAYLOAD_BYTES = 116,
    AT_PAYLOAD_CRC = 120,
    AT_ADDRESS = 120, /* of what is shown; else the two beside it */
    AT_ARGUMENT = 124
};
_Static_assert(AT_STAMP + PCCL__STAMP_BYTES == AT_BYTES && AT_ARGUMENT + 4 == TCP_HEADER_BYTES, "header layout");

enum { FLAGS = TCP_FLAG_EAGER | TCP_FLAG_CHECKED | TCP_FLAG_OFFERED | TCP_FLAG_ASKS | TCP_FLAG_SHOWN };

/* The CRC of a message whose CRC field, four bytes at `at`, counts as left out. */
static uint32_t message_crc(const uint8_t *wire, size_t bytes, size_t at) {
    uint32_t crc = pccl__kernels()->crc32c(0, wire, at);
    return pccl__kernels()->crc32c(crc, wire + at + 4, bytes - at - 4);
}

void pccl__tcp_header_encode(const struct tcp_header *header, uint8_t wire[TCP_HEADER_BYTES]) {
    put_u16(wire + AT_MAGIC, HEADER_MAGIC);
    wire[AT_KIND] = header->kind;
    wire[AT_FLAGS] = header->flags;
    put_u64(wire + AT_ACK, header->ack);
    put_u64(wire + AT_CONTROL_ACK, header->control_ack);
    put_u64(wire + AT_RELEASED, header->released);
    put_u64(wire + AT_NUMBER, header->number);
    put_u64(wire + AT_EPOCH, header->key.epoch);
    put_u64(wire + AT_TAG, header->key.tag);
    put_u64(wire + AT_SCOPE, header->key.scope);
    put_u32(wire + AT_SEQUENCE, header->key.sequence);
    put_u32(wire + AT_STEP, header->key.step);
    put_u32(wire + AT_SEGMENT, header->key.segment);
    memcpy(wire + AT_STAMP, header->stamp.bytes, PCCL__STAMP_BYTES);
    put_u32(wire + AT_BYTES, header->bytes);
    put_u32(wire + AT_OFFSET, header->offset);
    put_u32(wire + AT_PAYLOAD_BYTES, header->payload_bytes);
    if (header->flags & TCP_FLAG_SHOWN) {
        put_u64(wire + AT_ADDRESS, header->address);
    } else {
        put_u32(wire + AT_PAYLOAD_CRC, header->payload_crc);
        put_u32(wire + AT_ARGUMENT, header->argument);
    }
    put_u32(wire + AT_CRC, message_crc(wire, TCP_HEADER_BYTES, AT_CRC));
}

/* The limits that hold for a frame of its kind whatever the state of the link. */
static bool header_is_sound(const struct tcp_header *h) {
    bool eager = h->flags & TCP_FLAG_EAGER;
    bool shown = h->flags & TCP_FLAG_SHOWN;
    if (shown && (h->kind != TCP_DATA || eager || (h->flags & TCP_FLAG_CHECKED) || h->payload_bytes == 0)) return false;
    if ((h->flags & TCP_FLAG_ASKS) && (h->kind != TCP_ACK || h->flags != TCP_FLAG_ASKS)) return false;
    if ((h->flags & TCP_FLAG_OFFERED) && (eager || h->kind != TCP_DATA)) return false;
    switch (h->kind) {
    case TCP_DATA:
        if (h->bytes > PCCL__TRANSFER_BYTES || h->payload_bytes > TCP_FRAME_MAX) return false;
        if ((uint64_t)h->offset + h->payload_bytes > h->bytes) return false;
        if (eager) return h->offset == 0 && h->payload_bytes == h->bytes && h->bytes <= PCCL__EAGER_BYTES;
        return h->payload_bytes > 0 || h->bytes == 0;
    case TCP_OFFER:
    case TCP_GO:
        return !eager && h->payload_bytes == 0 && h->bytes <= PCCL__TRANSFER_BYTES;
    case TCP_NOTICE:
        return !eager && h->payload_bytes <= PCCL__NOTICE_BYTES;
    case TCP_DOWN:
        return !eager && h->payload_bytes == 0 && h->argument < TCP_STRIPES_MAX;
    default:
        return h->kind == TCP_ACK && !eager && h->payload_bytes == 0 && h->bytes <= TCP_FRAME_MAX;
    }
}

bool pccl__tcp_header_decode(struct tcp_header *header, const uint8_t wire[TCP_HEADER_BYTES]) {
    if (get_u16(wire + AT_MAGIC) != HEADER_MAGIC) return false;
    if (get_u32(wire + AT_CRC) != message_crc(wire, TCP_HEADER_BYTES, AT_CRC)) return false;
    *header = (struct tcp_header){
        .ack = get_u64(wire + AT_ACK),
        .control_ack = get_u64(wire + AT_CONTROL_ACK),
        .released = get_u64(wire + AT_RELEASED),
        .number = get_u64(wire + AT_NUMBER),
        .key = {.epoch = get_u64(wire + AT_EPOCH),
                .tag = get_u64(wire + AT_TAG),
                .scope = get_u64(wire + AT_SCOPE),
                .sequence = get_u32(wire + AT_SEQUENCE),
                .step = get_u32(wire + AT_STEP),
                .segment = get_u32(wire + AT_SEGMENT)},
        .bytes = get_u32(wire + AT_BYTES),
        .offset = get_u32(wire + AT_OFFSET),
        .payload_bytes = get_u32(wire + AT_PAYLOAD_BYTES),
        .kind = wire[AT_KIND],
        .flags = wire[AT_FLAGS],
    };
    memcpy(header->stamp.bytes, wire + AT_STAMP, PCCL__STAMP_BYTES);
    if (header->flags & TCP_FLAG_SHOWN) {
        header->address = get_u64(wire + AT_ADDRESS);
    } else {
        header->payload_crc = get_u32(wire + AT_PAYLOAD_CRC);
        header->argument = get_u32(wire + AT_ARGUMENT);
    }
    if (header->flags & ~FLAGS) return false;
    return header_is_sound(header);
}

/* Where things stand in a greeting. */
enum {
    HELLO_AT_VERSION = 4,
    HELLO_AT_SHARES = 6,
    HELLO_AT_SECRET = 8,
    HELLO_AT_FROM = 24,
    HELLO_AT_TO = 40,
    HELLO_AT_FROM_INSTANCE = 56,
    HELLO_AT_TO_INSTANCE = 64,
    HELLO_AT_STRIPE = 72,
    HELLO_AT_GENERATION = 76,
    HELLO_AT_OFFER = 80,
    HELLO_AT_CRC = TCP_HELLO_BYTES - 4
};

void pccl__tcp_hello_encode(const struct tcp_hello *hello, uint8_t wire[TCP_HELLO_BYTES]) {
    memset(wire, 0, TCP_HELLO_BYTES);
    put_u32(wire, HELLO_MAGIC);
    put_u16(wire + HELLO_AT_VERSION, hello->version);
    put_u16(wire + HELLO_AT_SHARES, hello->shares);
    memcpy(wire + HELLO_AT_SECRET, hello->secret, sizeof hello->secret);
    memcpy(wire + HELLO_AT_FROM, hello->from.bytes, sizeof hello->from.bytes);
    memcpy(wire + HELLO_AT_TO, hello->to.bytes, sizeof hello->to.bytes);
    put_u64(wire + HELLO_AT_FROM_INSTANCE, hello->from_instance);
    put_u64(wire + HELLO_AT_TO_INSTANCE, hello->to_instance);
    put_u32(wire + HELLO_AT_STRIPE, hello->stripe);
    put_u32(wire + HELLO_AT_GENERATION, hello->generation);
    pccl__rdma_offer_encode(&hello->offer, wire + HELLO_AT_OFFER);
    put_u32(wire + HELLO_AT_CRC, message_crc(wire, TCP_HELLO_BYTES, HELLO_AT_CRC));
}

enum tcp_hello_verdict pccl__tcp_hello_decode(struct tcp_hello *hello, const uint8_t wire[TCP_HELLO_BYTES]) {
    *hello = (struct tcp_hello){0};
    if (get_u32(wire) != HELLO_MAGIC) return TCP_HELLO_FOREIGN;
    hello->version = get_u16(wire + HELLO_AT_VERSION);
    if (hello->version != TCP_WIRE_VERSION) return TCP_HELLO_VERSION;
    if (get_u16(wire + HELLO_AT_SHARES) > 1) return TCP_HELLO_FOREIGN;
    hello->shares = get_u16(wire + HELLO_AT_SHARES);
    if (get_u32(wire + HELLO_AT_CRC) != message_crc(wire, TCP_HELLO_BYTES, HELLO_AT_CRC)) return TCP_HELLO_FOREIGN;
    memcpy(hello->secret, wire + HELLO_AT_SECRET, sizeof hello->secret);
    memcpy(hello->from.bytes, wire + HELLO_AT_FROM, sizeof hello->from.bytes);
    memcpy(hello->to.bytes, wire + HELLO_AT_TO, sizeof hello->to.bytes);
    hello->from_instance = get_u64(wire + HELLO_AT_FROM_INSTANCE);
    hello->to_instance = get_u64(wire + HELLO_AT_TO_INSTANCE);
    hello->stripe = get_u32(wire + HELLO_AT_STRIPE);
    hello->generation = get_u32(wire + HELLO_AT_GENERATION);
    if (hello->from_instance == 0 || hello->stripe >= TCP_STRIPES_MAX) return TCP_HELLO_FOREIGN;
    if (!pccl__rdma_offer_decode(&hello->offer, wire + HELLO_AT_OFFER)) return TCP_HELLO_FOREIGN;
    return TCP_HELLO_OK;
}

/* Where things stand in an answer. */
enum {
    ANSWER_AT_VERSION = 4,
    ANSWER_AT_CODE = 6,
    ANSWER_AT_INSTANCE = 8,
    ANSWER_AT_PROCESS = 16,
    ANSWER_AT_DESCRIPTOR = 20,
    ANSWER_AT_OFFER = 24,
    ANSWER_AT_CRC = TCP_ANSWER_BYTES - 4
};

void pccl__tcp_answer_encode(const struct tcp_answer *answer, uint8_t wire[TCP_ANSWER_BYTES]) {
    memset(wire, 0, TCP_ANSWER_BYTES);
    put_u32(wire, ANSWER_MAGIC);
    put_u16(wire + ANSWER_AT_VERSION, answer->version);
    wire[ANSWER_AT_CODE] = answer->code;
    put_u64(wire + ANSWER_AT_INSTANCE, answer->instance);
    put_u32(wire + ANSWER_AT_PROCESS, answer->process);
    put_u32(wire + ANSWER_AT_DESCRIPTOR, answer->descriptor);
    pccl__rdma_offer_encode(&answer->offer, wire + ANSWER_AT_OFFER);
    put_u32(wire + ANSWER_AT_CRC, message_crc(wire, TCP_ANSWER_BYTES, ANSWER_AT_CRC));
}

bool pccl__tcp_answer_decode(struct tcp_answer *answer, const uint8_t wire[TCP_ANSWER_BYTES]) {
    *answer = (struct tcp_answer){0};
    if (get_u32(wire) != ANSWER_MAGIC) return false;
    if (get_u32(wire + ANSWER_AT_CRC) != message_crc(wire, TCP_ANSWER_BYTES, ANSWER_AT_CRC)) return false;
    answer->version = get_u16(wire + ANSWER_AT_VERSION);
    answer->code = wire[ANSWER_AT_CODE];
    answer->instance = get_u64(wire + ANSWER_AT_INSTANCE);
    answer->process = get_u32(wire + ANSWER_AT_PROCESS);
    answer->descriptor = get_u32(wire + ANSWER_AT_DESCRIPTOR);
    if (answer->code < TCP_ANSWER_OK || answer->code >= TCP_ANSWER_END) return false;
    if (answer->process == 0 ? answer->descriptor != 0 : answer->code != TCP_ANSWER_OK) return false;
    if (!pccl__rdma_offer_decode(&answer->offer, wire + ANSWER_AT_OFFER)) return false;
    if (answer->offer.queue.number && answer->code != TCP_ANSWER_OK) return false;
    return (answer->code == TCP_ANSWER_OK) == (answer->instance != 0);
}

bool pccl__tcp_secret_equal(const uint8_t a[16], const uint8_t b[16]) {
    volatile uint8_t difference = 0;
    for (int i = 0; i < 16; i++) difference = (uint8_t)(difference | (a[i] ^ b[i]));
    return difference == 0;
}
