/* SPDX-License-Identifier: MIT
 *
 * tcp_wire_test.c - frames, greetings and answers: what is encoded comes back, every limit is enforced, no single bit
 * may flip unseen; then random and mutated bytes through the fuzz target.
 */
#include "../fuzz/fuzz_tcp_wire.c"

#include "base/prng.h"
#include "check.h"

static struct tcp_header sample(enum tcp_kind kind) {
    struct tcp_header header = {
        .ack = 1,
        .control_ack = UINT64_MAX,
        .released = 3,
        .number = 4,
        .key = {.epoch = 5, .tag = 6, .scope = UINT64_MAX - 5, .sequence = 7, .step = 8, .segment = 9},
        .argument = kind == TCP_DOWN ? TCP_STRIPES_MAX - 1 : 10,
        .kind = (uint8_t)kind};
    for (int i = 0; i < PCCL__STAMP_BYTES; i++) header.stamp.bytes[i] = (uint8_t)(100 + i);
    if (kind == TCP_DATA || kind == TCP_NOTICE) {
        header.bytes = 1000;
        header.payload_bytes = 200;
        header.payload_crc = 11;
        header.flags = TCP_FLAG_CHECKED;
    }
    return header;
}

static bool round_trip(const struct tcp_header *header, struct tcp_header *back) {
    uint8_t wire[TCP_HEADER_BYTES];
    pccl__tcp_header_encode(header, wire);
    return pccl__tcp_header_decode(back, wire);
}

static bool is_sound(struct tcp_header header) {
    struct tcp_header back;
    return round_trip(&header, &back);
}

static void test_headers_come_back(void) {
    for (int kind = TCP_DATA; kind < TCP_KIND_END; kind++) {
        struct tcp_header header = sample(kind), back;
        EXPECT(round_trip(&header, &back), "kind %d", kind);
        EXPECT(back.ack == header.ack && back.control_ack == header.control_ack && back.released == header.released);
        EXPECT(back.number == header.number && pccl__key_equal(&back.key, &header.key));
        EXPECT(memcmp(&back.stamp, &header.stamp, sizeof back.stamp) == 0);
        EXPECT(back.bytes == header.bytes && back.offset == header.offset && back.flags == header.flags);
        EXPECT(back.payload_bytes == header.payload_bytes && back.payload_crc == header.payload_crc);
        EXPECT(back.argument == header.argument && back.kind == header.kind);
    }
    struct tcp_header shown = sample(TCP_DATA), back;
    shown.flags = TCP_FLAG_SHOWN;
    shown.address = UINT64_MAX - 12;
    EXPECT(round_trip(&shown, &back) && back.address == shown.address && back.payload_bytes == shown.payload_bytes);
    EXPECT(back.payload_crc == 0 && back.argument == 0, "the address stands in their place");
}

static void test_limits(void) {
    struct tcp_header h = sample(TCP_DATA);
    h.offset = 800;
    EXPECT(is_sound(h));
    h.offset = 801;
    EXPECT(!is_sound(h), "payload beyond its transfer");
    h.offset = UINT32_MAX;
    EXPECT(!is_sound(h), "the sum must not wrap");
    h = sample(TCP_DATA);
    h.payload_bytes = 0;
    EXPECT(!is_sound(h), "an empty piece of a transfer that is not empty would come for ever");
    h.bytes = 0;
    EXPECT(is_sound(h));
    h.bytes = h.payload_bytes = TCP_FRAME_MAX;
    EXPECT(is_sound(h));
    h.bytes = h.payload_bytes = TCP_FRAME_MAX + 1;
    EXPECT(!is_sound(h));
    h = sample(TCP_DATA);
    h.bytes = PCCL__TRANSFER_BYTES + 1;
    EXPECT(!is_sound(h));
    h.flags = TCP_FLAG_EAGER;
    h.bytes = h.payload_bytes = PCCL__EAGER_BYTES;
    EXPECT(is_sound(h));
    h.bytes = h.payload_bytes = PCCL__EAGER_BYTES + 1;
    EXPECT(!is_sound(h));
    h.bytes = h.payload_bytes + 1;
    EXPECT(!is_sound(h), "eager data come whole");
    h = sample(TCP_NOTICE);
    h.payload_bytes = PCCL__NOTICE_BYTES + 1;
    EXPECT(!is_sound(h));
    h = sample(TCP_DOWN);
    h.argument = TCP_STRIPES_MAX;
    EXPECT(!is_sound(h));
    h = sample(TCP_ACK);
    h.payload_bytes = 1;
    EXPECT(!is_sound(h));
    h = sample(TCP_ACK);
    h.bytes = TCP_FRAME_MAX;
    h.flags = TCP_FLAG_ASKS;
    EXPECT(is_sound(h));
    h.bytes = TCP_FRAME_MAX + 1;
    EXPECT(!is_sound(h), "more than a frame has");
    h = sample(TCP_DATA);
    h.flags = TCP_FLAG_ASKS;
    EXPECT(!is_sound(h), "only an ACK asks");
    h = sample(TCP_DATA);
    h.flags = TCP_FLAG_SHOWN;
    EXPECT(is_sound(h));
    h.flags = TCP_FLAG_SHOWN | TCP_FLAG_CHECKED;
    EXPECT(!is_sound(h), "there is no place for the sum");
    h.flags = TCP_FLAG_SHOWN | TCP_FLAG_EAGER;
    EXPECT(!is_sound(h), "eager data are copied");
    h.flags = TCP_FLAG_SHOWN;
    h.payload_bytes = h.bytes = 0;
    EXPECT(!is_sound(h), "nothing lies nowhere");
    h = sample(TCP_OFFER);
    h.flags = TCP_FLAG_SHOWN;
    EXPECT(!is_sound(h), "only data are shown");
    h = sample(TCP_ACK);
    h.flags = 0x80;
    EXPECT(!is_sound(h), "an unknown flag");
    for (int kind = 0; kind < 256; kind++) {
        h = sample(TCP_ACK);
        h.kind = (uint8_t)kind;
        h.argument = 0;
        EXPECT(is_sound(h) == (kind >= TCP_DATA && kind < TCP_KIND_END), "%d", kind);
    }
}

static struct tcp_hello sample_hello(void) {
    return (struct tcp_hello){.version = TCP_WIRE_VERSION,
                              .shares = true,
                              .secret = "fifteen letters",
                              .from = {"from somewhere.."},
                              .to = {"to somewhere...."},
                              .from_instance = 1,
                              .to_instance = UINT64_MAX,
                              .stripe = 63,
                              .generation = 2,
                              .offer = {.queue = {.number = 5, .mtu = 1, .layer = VERBS_ETHERNET},
                                        .ring_at = 8,
                                        .ring_bytes = RDMA_RING_MOST}};
}

static void test_greetings(void) {
    struct tcp_hello hello = sample_hello(), back;
    uint8_t wire[TCP_HELLO_BYTES];
    pccl__tcp_hello_encode(&hello, wire);
    EXPECT(pccl__tcp_hello_decode(&back, wire) == TCP_HELLO_OK);
    EXPECT(memcmp(&back.secret, &hello.secret, 16) == 0 && memcmp(&back.from, &hello.from, 16) == 0);
    EXPECT(memcmp(&back.to, &hello.to, 16) == 0 && back.to_instance == UINT64_MAX && back.from_instance == 1);
    EXPECT(back.stripe == 63 && back.generation == 2 && back.shares);
    EXPECT(back.offer.queue.number == 5 && back.offer.ring_at == 8 && back.offer.ring_bytes == RDMA_RING_MOST);
    hello.version = TCP_WIRE_VERSION + 1;
    pccl__tcp_hello_encode(&hello, wire);
    EXPECT(pccl__tcp_hello_decode(&back, wire) == TCP_HELLO_VERSION && back.version == TCP_WIRE_VERSION + 1);
    hello = sample_hello();
    hello.stripe = TCP_STRIPES_MAX;
    pccl__tcp_hello_encode(&hello, wire);
    EXPECT(pccl__tcp_hello_decode(&back, wire) == TCP_HELLO_FOREIGN);
    hello = sample_hello();
    hello.from_instance = 0;
    pccl__tcp_hello_encode(&hello, wire);
    EXPECT(pccl__tcp_hello_decode(&back, wire) == TCP_HELLO_FOREIGN);
    hello = sample_hello();
    hello.offer.ring_bytes = 5;
    pccl__tcp_hello_encode(&hello, wire);
    EXPECT(pccl__tcp_hello_decode(&back, wire) == TCP_HELLO_FOREIGN);
}

static void test_answers(void) {
    for (int code = 0; code < 256; code++) {
        struct tcp_answer answer = {TCP_WIRE_VERSION, (uint8_t)code, code == TCP_ANSWER_OK ? 7 : 0, .process = 0}, back;
        uint8_t wire[TCP_ANSWER_BYTES];
        pccl__tcp_answer_encode(&answer, wire);
        bool known = code >= TCP_ANSWER_OK && code < TCP_ANSWER_END;
        EXPECT(pccl__tcp_answer_decode(&back, wire) == known, "%d", code);
        if (known) EXPECT(back.code == code && back.instance == answer.instance && back.version == TCP_WIRE_VERSION);
        answer.instance ^= 7;
        pccl__tcp_answer_encode(&answer, wire);
        EXPECT(!pccl__tcp_answer_decode(&back, wire), "an instance belongs to OK and only to it");
        answer.instance ^= 7;
        answer.process = 1;
        answer.descriptor = UINT32_MAX;
        pccl__tcp_answer_encode(&answer, wire);
        EXPECT(pccl__tcp_answer_decode(&back, wire) == (code == TCP_ANSWER_OK), "and so does a segment");
        if (code == TCP_ANSWER_OK) EXPECT(back.process == 1 && back.descriptor == UINT32_MAX);
        answer.process = 0;
        pccl__tcp_answer_encode(&answer, wire);
        EXPECT(!pccl__tcp_answer_decode(&back, wire), "a descriptor of no process");
        answer.descriptor = 0;
        answer.offer = sample_hello().offer;
        pccl__tcp_answer_encode(&answer, wire);
        EXPECT(pccl__tcp_answer_decode(&back, wire) == (code == TCP_ANSWER_OK), "nor does an offer belong to others");
        if (code == TCP_ANSWER_OK) EXPECT(back.offer.queue.number == 5 && back.offer.ring_at == 8);
    }
}

/* The CRC sees every single bit, and the version of a greeting is read before it. */
static void test_no_bit_flips_unseen(void) {
    struct tcp_header header = sample(TCP_DATA);
    struct tcp_hello hello = sample_hello();
    uint8_t wire[TCP_HELLO_BYTES];
    for (uint32_t bit = 0; bit < 8 * TCP_HELLO_BYTES; bit++) {
        pccl__tcp_header_encode(&header, wire);
        wire[bit / 8] ^= (uint8_t)(1 << bit % 8);
        struct tcp_header back;
        EXPECT(bit >= 8 * TCP_HEADER_BYTES || !pccl__tcp_header_decode(&back, wire), "bit %u", bit);
        pccl__tcp_hello_encode(&hello, wire);
        wire[bit / 8] ^= (uint8_t)(1 << bit % 8);
        struct tcp_hello seen;
        EXPECT(pccl__tcp_hello_decode(&seen, wire) != TCP_HELLO_OK, "bit %u", bit);
    }
}

static void test_secrets(void) {
    uint8_t a[16] = {0}, b[16] = {0};
    EXPECT(pccl__tcp_secret_equal(a, b));
    for (int bit = 0; bit < 128; bit++) {
        b[bit / 8] ^= (uint8_t)(1 << bit % 8);
        EXPECT(!pccl__tcp_secret_equal(a, b));
        b[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

/* Sound messages with a few bytes changed, and plain noise. The target aborts on anything unsound. */
static void test_fuzz(uint64_t seed, uint32_t rounds) {
    for (uint32_t i = 0; i < rounds; i++) {
        uint8_t input[1 + TCP_HELLO_BYTES];
        uint32_t kind = prng_below(&seed, 3);
        input[0] = (uint8_t)(kind | (prng_below(&seed, 8) ? FUZZ_MEND : 0));
        struct tcp_header header = sample(1 + (int)prng_below(&seed, TCP_KIND_END - 1));
        struct tcp_hello hello = sample_hello();
        struct tcp_answer answer = {TCP_WIRE_VERSION, TCP_ANSWER_OK, 1, .process = prng_below(&seed, 2) ? 4711 : 0};
        if (kind == FUZZ_HEADER) pccl__tcp_header_encode(&header, input + 1);
        if (kind == FUZZ_HELLO) pccl__tcp_hello_encode(&hello, input + 1);
        if (kind == FUZZ_ANSWER) pccl__tcp_answer_encode(&answer, input + 1);
        uint32_t changes = prng_below(&seed, 16) ? prng_below(&seed, 6) : sizeof input;
        for (uint32_t k = 0; k < changes; k++)
            input[1 + prng_below(&seed, TCP_HELLO_BYTES)] = (uint8_t)prng_next(&seed);
        EXPECT(LLVMFuzzerTestOneInput(input, 1 + prng_below(&seed, sizeof input)) == 0);
    }
}

int main(void) {
    test_headers_come_back();
    test_limits();
    test_greetings();
    test_answers();
    test_no_bit_flips_unseen();
    test_secrets();
    test_fuzz(1, 200000);
    FINISH();
}
