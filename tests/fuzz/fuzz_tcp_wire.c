/* SPDX-License-Identifier: MIT
 *
 * fuzz_tcp_wire.c - whatever bytes come: a header, greeting or answer is refused, or is sound and survives encoding.
 *
 * libFuzzer entry (clang -fsanitize=fuzzer,address); tests/c/tcp_wire_test.c drives it without one. The first byte
 * picks the message and whether its checksum is mended first: else no mutation would ever get behind it.
 */
#include "channel/tcp_wire.h"

#include <string.h>

#include "base/bits.h"
#include "base/check.h"
#include "kernel/kernel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { FUZZ_HEADER = 0, FUZZ_HELLO = 1, FUZZ_ANSWER = 2, FUZZ_MEND = 4 };

/* Writes the CRC that the message ought to have into its field at `at`. */
static void mend(uint8_t *wire, size_t bytes, size_t at) {
    uint32_t crc = pccl__kernels()->crc32c(0, wire, at);
    put_u32(wire + at, pccl__kernels()->crc32c(crc, wire + at + 4, bytes - at - 4));
}

static void fuzz_header(uint8_t *wire) {
    struct tcp_header header;
    if (!pccl__tcp_header_decode(&header, wire)) return;
    CHECK(header.kind >= TCP_DATA && header.kind < TCP_KIND_END);
    CHECK(header.payload_bytes <= TCP_FRAME_MAX);
    if (header.kind == TCP_DATA) CHECK((uint64_t)header.offset + header.payload_bytes <= header.bytes);
    if (header.kind == TCP_DATA) CHECK(header.bytes <= PCCL__TRANSFER_BYTES);
    if (header.kind == TCP_ACK) CHECK(header.bytes <= TCP_FRAME_MAX);
    if (header.flags & TCP_FLAG_ASKS) CHECK(header.kind == TCP_ACK && header.flags == TCP_FLAG_ASKS);
    if (header.kind == TCP_NOTICE) CHECK(header.payload_bytes <= PCCL__NOTICE_BYTES);
    if (header.kind == TCP_DOWN) CHECK(header.argument < TCP_STRIPES_MAX);
    if (header.kind != TCP_DATA && header.kind != TCP_NOTICE) CHECK(header.payload_bytes == 0);
    uint8_t again[TCP_HEADER_BYTES];
    pccl__tcp_header_encode(&header, again);
    CHECK(memcmp(again, wire, sizeof again) == 0);
}

static void fuzz_hello(uint8_t *wire) {
    struct tcp_hello hello, copy;
    memset(&copy, 0, sizeof copy);
    if (pccl__tcp_hello_decode(&hello, wire) != TCP_HELLO_OK) return;
    CHECK(hello.stripe < TCP_STRIPES_MAX && hello.from_instance != 0 && hello.version == TCP_WIRE_VERSION);
    uint8_t again[TCP_HELLO_BYTES];
    pccl__tcp_hello_encode(&hello, again);
    CHECK(pccl__tcp_hello_decode(&copy, again) == TCP_HELLO_OK);
    CHECK(memcmp(&hello.secret, &copy.secret, 16) == 0 && memcmp(&hello.from, &copy.from, 16) == 0);
    CHECK(hello.generation == copy.generation && hello.stripe == copy.stripe && hello.shares == copy.shares);
}

static void fuzz_answer(uint8_t *wire) {
    struct tcp_answer answer, copy;
    if (!pccl__tcp_answer_decode(&answer, wire)) return;
    CHECK(answer.code >= TCP_ANSWER_OK && answer.code < TCP_ANSWER_END);
    CHECK((answer.code == TCP_ANSWER_OK) == (answer.instance != 0));
    CHECK(answer.process == 0 ? answer.descriptor == 0 : answer.code == TCP_ANSWER_OK);
    uint8_t again[TCP_ANSWER_BYTES];
    pccl__tcp_answer_encode(&answer, again);
    CHECK(pccl__tcp_answer_decode(&copy, again) && copy.instance == answer.instance && copy.code == answer.code);
    CHECK(copy.process == answer.process && copy.descriptor == answer.descriptor);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const struct {
        size_t bytes, crc_at;
        void (*run)(uint8_t *);
    } kinds[] = {[FUZZ_HEADER] = {TCP_HEADER_BYTES, 4, fuzz_header},
                 [FUZZ_HELLO] = {TCP_HELLO_BYTES, TCP_HELLO_BYTES - 4, fuzz_hello},
                 [FUZZ_ANSWER] = {TCP_ANSWER_BYTES, TCP_ANSWER_BYTES - 4, fuzz_answer}};
    if (bytes == 0) return 0;
    unsigned kind = data[0] % 4u;
    if (kind > FUZZ_ANSWER) return 0;
    uint8_t wire[TCP_HELLO_BYTES] = {0}; /* the longest */
    memcpy(wire, data + 1, bytes - 1 < kinds[kind].bytes ? bytes - 1 : kinds[kind].bytes);
    if (data[0] & FUZZ_MEND) mend(wire, kinds[kind].bytes, kinds[kind].crc_at);
    kinds[kind].run(wire);
    return 0;
}
