/* SPDX-License-Identifier: MIT
 *
 * fuzz_session.c - a member that went mad: well-formed greetings, answers and frames with valid checksums, whose fields
 * and order are the fuzzer's, against one channel that sends, receives, cancels and changes epochs meanwhile. Either
 * side may dial. A member of the same host may share memory, offer what is no such memory, and scribble in it.
 *
 * Whatever comes, every posted transfer completes exactly once, memory outside a transfer is never written, what is
 * kept is bounded, and nothing leaks: memory (run under AddressSanitizer), descriptors, rings.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/clock.h"
#include "channel/tcp.h"
#include "channel/tcp_channel.h"
#include "kernel/kernel.h"
#include "shared_fuzz.h"

enum { CONNECTIONS = 3, TRANSFERS = 12, SMALL_BYTES = 300000, OUT_BYTES = 1 << 19, GUARD_BYTES = 32, GUARD = 0xA5 };
enum { FAR_INSTANCE = 7, RING_BYTES = 16 * 1024 };

static const uint32_t sizes[] = {0, 1, 100, PCCL__EAGER_BYTES, PCCL__EAGER_BYTES + 1, SMALL_BYTES};
static const uint32_t wild[] = {PCCL__TRANSFER_BYTES, PCCL__TRANSFER_BYTES + 1, TCP_FRAME_MAX, UINT32_MAX};

/* The mad side's end of one connection. */
struct far {
    int fd; /* -1: none */
    uint64_t sent_data, seen_data;
    uint8_t *out;
    size_t out_begin, out_end;
    uint8_t in[TCP_HELLO_BYTES];
    size_t in_bytes, skip;
    uint32_t payload; /* of the last frame that came, if it was DATA */
    bool greeted, dialled;
    bool attaches;          /* dialled: takes the memory that it is offered */
    struct tcp_hello hello; /* what the dialling side said */
    struct shm_segment segment;
    struct shm_ring ring_out, ring_in;
    bool rings; /* bytes go through them */
};

struct owned {
    struct pccl__transfer transfer;
    uint8_t *block;
    int completions;
    bool posted;
};

struct session {
    struct fuzz_input input;
    struct pccl__poll *poll;
    struct pccl__transport *transport;
    struct pccl__channel *channel;
    int listener; /* the mad side's */
    struct far far[CONNECTIONS];
    struct owned owned[TRANSFERS];
    uint64_t now_ns, epoch, sent_control, seen_control, instance;
};

static pccl_peer_id id_of(uint8_t number) { return (pccl_peer_id){{number}}; }

static uint32_t pick_size(struct fuzz_input *input) {
    uint32_t choice = fuzz_pick(input, 8);
    return choice < 6 ? sizes[choice] : choice == 6 ? wild[fuzz_pick(input, 4)] : fuzz_u32(input);
}

static struct pccl__key pick_key(struct session *s) {
    uint32_t byte = fuzz_byte(&s->input);
    return (struct pccl__key){.epoch = byte % 8 == 7 ? 0 : s->epoch + (byte % 8 == 6) - (byte % 8 == 5),
                              .tag = byte >> 3 & 1,
                              .sequence = byte >> 4 & 1,
                              .step = byte >> 5 & 3,
                              .segment = byte >> 7};
}

/* ---------------------------------------------------------------- the mad side */

static void put(struct far *far, const void *bytes, size_t count) {
    if (count > OUT_BYTES - far->out_end) return; /* that much is cut off: a torn frame */
    memcpy(far->out + far->out_end, bytes, count);
    far->out_end += count;
}

static void push(struct far *far) {
    if (far->fd < 0 || far->out_begin == far->out_end) return;
    struct iovec part = {far->out + far->out_begin, far->out_end - far->out_begin};
    ssize_t sent = far->rings ? (ssize_t)pccl__shm_ring_write(&far->ring_out, &part, 1)
                              : send(far->fd, part.iov_base, part.iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (far->rings) (void)!send(far->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL); /* the bell */
    if (sent > 0) far->out_begin += (size_t)sent;
    if (far->out_begin == far->out_end) far->out_begin = far->out_end = 0;
}

static void use_rings(struct far *far) {
    pccl__shm_segment_rings(&far->segment, far->dialled, &far->ring_out, &far->ring_in);
    far->rings = true;
}

/* As the channel makes it; `answering` is the instance of the side that was dialled. */
static struct shm_token token_of(const struct tcp_hello *hello, uint64_t answering) {
    struct shm_token token;
    put_u64(token.bytes, answering);
    put_u64(token.bytes + 8, hello->from_instance);
    put_u32(token.bytes + 16, hello->stripe);
    put_u32(token.bytes + 20, hello->generation);
    return token;
}

/* The channel answered our greeting. Its content is of no interest, but for the instance and memory to share. */
static void see_answer(struct session *s, struct far *far) {
    struct tcp_answer said;
    if (!pccl__tcp_answer_decode(&said, far->in)) return;
    s->instance = said.instance;
    if (said.process == 0 || !far->attaches) return;
    struct shm_token token = token_of(&far->hello, said.instance);
    if (pccl__shm_segment_open(&far->segment, &token, said.process, said.descriptor) != 0) return; /* gone by now */
    pccl__shm_segment_attach(&far->segment);
    use_rings(far);
}

/* The channel dialled and greeted: the answer is true in most points. */
static void see_greeting(struct session *s, struct far *far) {
    uint32_t how = fuzz_byte(&s->input), what = how & 15;
    CHECK(pccl__tcp_hello_decode(&far->hello, far->in) == TCP_HELLO_OK);
    s->instance = far->hello.from_instance;
    struct tcp_answer answer = {.version = TCP_WIRE_VERSION, .code = TCP_ANSWER_OK, .instance = FAR_INSTANCE};
    if (what == 15) answer.instance++;
    if (what >= 12 && what < 15) {
        answer.code = (uint8_t)(TCP_ANSWER_BUSY + fuzz_pick(&s->input, TCP_ANSWER_END - TCP_ANSWER_BUSY));
        answer.instance = 0;
    }
    if (answer.code == TCP_ANSWER_OK && what < 8) { /* memory; 4 and above: not what the channel looks for */
        struct shm_token token = token_of(&far->hello, what == 4 ? FAR_INSTANCE + 1 : FAR_INSTANCE);
        CHECK(pccl__shm_segment_make(&far->segment, &token, RING_BYTES >> (how >> 4) % 3) == 0);
        answer.process = what == 5 ? 1 : what == 6 ? fuzz_u32(&s->input) : (uint32_t)getpid();
        answer.descriptor = what == 7 ? fuzz_byte(&s->input) : (uint32_t)far->segment.fd;
    }
    uint8_t wire[TCP_ANSWER_BYTES];
    pccl__tcp_answer_encode(&answer, wire);
    (void)!send(far->fd, wire, what == 11 ? sizeof wire / 2 : sizeof wire, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* The channel has attached by its first frame, or does not share. */
static void settle(struct far *far) {
    if (far->dialled || !far->segment.memory || far->rings) return;
    if (pccl__shm_segment_attached(&far->segment)) use_rings(far);
}

/* Up to `count` bytes of what the channel says; 0 or less: there is nothing. */
static ssize_t hear(struct far *far, uint8_t *buffer, size_t count) {
    settle(far);
    if (!far->rings) return recv(far->fd, buffer, count, MSG_DONTWAIT);
    while (recv(far->fd, buffer, count, MSG_DONTWAIT) > 0) continue; /* bells */
    struct iovec part = {buffer, count};
    return (ssize_t)pccl__shm_ring_read(&far->ring_in, &part, 1);
}

static void see(struct session *s, struct far *far) {
    struct tcp_header header;
    if (!pccl__tcp_header_decode(&header, far->in)) return;
    far->skip = header.payload_bytes;
    far->payload = header.kind == TCP_DATA ? header.payload_bytes : 0;
    if (header.kind == TCP_DATA) far->seen_data++;
    if (header.kind != TCP_DATA && header.kind != TCP_ACK) s->seen_control = header.number;
}

/* A greeting, an answer or the header of a frame is whole. */
static void see_whole(struct session *s, struct far *far) {
    far->in_bytes = 0;
    if (far->greeted)
        see(s, far);
    else if (far->dialled)
        see_answer(s, far);
    else
        see_greeting(s, far);
    far->greeted = true;
}

/* So many bytes until something is whole. */
static size_t missing(const struct far *far) {
    if (far->skip) return far->skip;
    size_t whole = far->greeted ? TCP_HEADER_BYTES : far->dialled ? TCP_ANSWER_BYTES : TCP_HELLO_BYTES;
    return whole - far->in_bytes;
}

/* Reads what the channel says, so that acknowledgements can be true. Not beyond a greeting: memory may follow it. */
static void pull(struct session *s, struct far *far) {
    static uint8_t buffer[1 << 16];
    ssize_t got;
    while (far->fd >= 0 && (got = hear(far, buffer, far->greeted ? sizeof buffer : missing(far))) > 0) {
        for (size_t at = 0; at < (size_t)got;) {
            size_t take = (size_t)min_u64((size_t)got - at, missing(far));
            if (far->skip) {
                far->skip -= take;
            } else {
                memcpy(far->in + far->in_bytes, buffer + at, take);
                far->in_bytes += take;
                if (missing(far) == 0) see_whole(s, far);
            }
            at += take;
        }
    }
}

static void hang_up(struct far *far) {
    if (far->fd >= 0) close(far->fd);
    pccl__shm_segment_close(&far->segment);
    *far = (struct far){.fd = -1, .out = far->out, .segment.fd = -1};
}

static void dial(struct session *s, struct far *far, uint32_t index) {
    hang_up(far);
    struct tcp_address address;
    CHECK(pccl__tcp_address_parse(&address, "127.0.0.1", pccl__tcp_transport_port(s->transport)));
    far->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(far->fd >= 0);
    /* libFuzzer's timer would interrupt a connect that waits. */
    CHECK(connect(far->fd, (struct sockaddr *)&address.storage, address.bytes) == 0 || errno == EINPROGRESS);
    uint32_t how = fuzz_byte(&s->input), sharing = fuzz_pick(&s->input, 4);
    far->dialled = true;
    far->attaches = sharing > 1;
    far->hello = (struct tcp_hello){.version = TCP_WIRE_VERSION,
                                    .shares = sharing > 0,
                                    .secret = {how % 16 == 15},
                                    .from = id_of(how % 16 == 14 ? 3 : 2),
                                    .to = id_of(1),
                                    .from_instance = FAR_INSTANCE + (how % 16 == 13),
                                    .to_instance = s->instance,
                                    .stripe = how % 16 == 12 ? fuzz_byte(&s->input) % TCP_STRIPES_MAX : index,
                                    .generation = 1 + (how >> 4)};
    uint8_t wire[TCP_HELLO_BYTES];
    pccl__tcp_hello_encode(&far->hello, wire);
    put(far, wire, how % 16 == 11 ? sizeof wire / 2 : sizeof wire);
}

/* Takes a connection that the channel dialled, if there is one. */
static void answer(struct session *s, struct far *far) {
    int fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK);
    if (fd < 0) return;
    hang_up(far);
    far->fd = fd;
}

/* Writes to shared memory what no honest side would. */
static void scribble(struct session *s, struct far *far) {
    uint32_t how = fuzz_byte(&s->input);
    if (!far->segment.memory) return;
    struct shm_ring rings[2];
    pccl__shm_segment_rings(&far->segment, far->dialled, &rings[0], &rings[1]);
    struct shm_ring_shared *shared = rings[how & 1].shared;
    _Atomic uint64_t *position = how & 2 ? &shared->read : &shared->written;
    if (how & 4)
        atomic_store(how & 8 ? &shared->reader_sleeps : &shared->writer_sleeps, fuzz_byte(&s->input));
    else if (how & 8)
        memset(rings[how & 1].bytes, (int)(how >> 4), rings[0].capacity);
    else
        atomic_store(position, how & 16 ? fuzz_u32(&s->input) : atomic_load(position) + fuzz_byte(&s->input) - 8);
}

static void frame(struct session *s, struct far *far) {
    static uint8_t payload[SMALL_BYTES];
    struct fuzz_input *in = &s->input;
    struct tcp_header header = {.kind = (uint8_t)(1 + fuzz_pick(in, 6)), .key = pick_key(s)};
    uint32_t lies = fuzz_byte(in);
    bool data = header.kind == TCP_DATA;
    header.bytes = pick_size(in);
    header.stamp.bytes[0] = lies >> 1 & lies >> 2 & 1;
    header.ack = far->seen_data + (lies % 32 == 31);
    header.control_ack = s->seen_control + (lies % 32 == 30);
    header.released = lies % 32 == 29 ? fuzz_u32(in) : 0;
    if (header.kind != TCP_ACK) header.number = (data ? ++far->sent_data : ++s->sent_control) + (lies % 32 == 28);
    if (data) {
        header.flags = (uint8_t)(fuzz_byte(in) & (7 | TCP_FLAG_SHOWN));
        header.offset = header.flags & TCP_FLAG_EAGER ? 0 : pick_size(in);
        header.payload_bytes = header.flags & TCP_FLAG_EAGER ? header.bytes : pick_size(in);
    } else if (header.kind == TCP_NOTICE) {
        header.argument = lies & 64 ? fuzz_byte(in) : PCCL__NOTICE_OWNER + fuzz_pick(in, 4);
        header.payload_bytes = fuzz_pick(in, 4) * 170;
    } else if (header.kind == TCP_ACK) {
        header.flags = lies & 128 ? TCP_FLAG_ASKS : 0;
        header.bytes = lies % 32 == 26 ? pick_size(in) : 0;
        if (lies & 64 && far->payload) { /* part of that frame came, or all */
            header.ack--;
            header.bytes = far->payload - (uint32_t)far->skip;
        }
    } else if (header.kind == TCP_DOWN) {
        header.argument = fuzz_pick(in, CONNECTIONS + 1);
        header.bytes = 1 + fuzz_pick(in, 4);
        header.key.tag = fuzz_pick(in, 4);
    }
    if (header.payload_bytes > sizeof payload) header.payload_bytes = fuzz_byte(in);
    memset(payload, (int)lies, header.payload_bytes);
    if (header.flags & TCP_FLAG_CHECKED) header.payload_crc = pccl__kernels()->crc32c(0, payload, header.payload_bytes);
    uint8_t wire[TCP_HEADER_BYTES];
    pccl__tcp_header_encode(&header, wire);
    put(far, wire, sizeof wire);
    put(far, payload, lies % 32 == 27 ? header.payload_bytes / 2 : header.payload_bytes);
}

/* ---------------------------------------------------------------- our side */

static void run(struct session *s) {
    for (int i = 0; i < CONNECTIONS; i++) push(&s->far[i]);
    struct pccl__ready ready[PCCL__POLL_BATCH];
    (void)s->transport->ops->look(s->transport, s->input.left & 1);
    pccl__poll_dispatch(s->poll, ready, pccl__poll_wait(s->poll, 0, ready));
    s->transport->ops->progress(s->transport, s->now_ns);
    struct pccl__done done;
    pccl__done_init(&done);
    s->channel->ops->progress(s->channel, s->now_ns, &done);
    for (struct list *node; (node = list_pop_front(&done.transfers));) {
        struct owned *owned = LIST_ENTRY(node, struct pccl__transfer, link)->owner;
        CHECK(owned->posted && ++owned->completions == 1);
    }
    for (struct list *node; (node = list_pop_front(&done.notices));)
        pccl__notice_free(LIST_ENTRY(node, struct pccl__notice, link));
    const struct tcp_channel *channel = tcp_channel_of(s->channel);
    CHECK(channel->inbox.held_bytes <= PCCL__EAGER_WINDOW && channel->inbox.kept_count <= PCCL__BOX_ENTRIES);
    for (int i = 0; i < CONNECTIONS; i++) pull(s, &s->far[i]);
}

static void release(struct owned *owned) {
    for (int i = 0; owned->block && i < GUARD_BYTES; i++) {
        CHECK(owned->block[i] == GUARD);
        CHECK(owned->block[GUARD_BYTES + owned->transfer.bytes + (uint32_t)i] == GUARD);
    }
    free(owned->block);
    *owned = (struct owned){0};
}

/* Each (key, direction) is used once per epoch, by contract. */
static bool in_use(struct session *s, const struct pccl__key *key, bool is_send) {
    for (int i = 0; i < TRANSFERS; i++)
        if (s->owned[i].block && s->owned[i].transfer.is_send == is_send &&
            pccl__key_equal(&s->owned[i].transfer.key, key))
            return true;
    return false;
}

static void post(struct session *s, bool is_send) {
    struct owned *owned = &s->owned[fuzz_pick(&s->input, TRANSFERS)];
    struct pccl__key key = pick_key(s);
    uint32_t bytes = sizes[fuzz_pick(&s->input, 6)];
    if (owned->posted && !owned->completions) return;
    release(owned);
    if (in_use(s, &key, is_send)) return;
    owned->block = malloc(bytes + 2 * GUARD_BYTES);
    CHECK(owned->block);
    memset(owned->block, GUARD, bytes + 2 * GUARD_BYTES);
    owned->transfer = (struct pccl__transfer){
        .key = key, .data = owned->block + GUARD_BYTES, .bytes = bytes, .owner = owned, .is_send = is_send};
    owned->posted = true;
    if (is_send) owned->transfer.stamp.bytes[0] = fuzz_byte(&s->input) & 1;
    pccl_status status = is_send ? s->channel->ops->post_send(s->channel, &owned->transfer)
                                 : s->channel->ops->post_recv(s->channel, &owned->transfer);
    if (status != PCCL_OK) release(owned);
}

static void step(struct session *s) {
    struct fuzz_input *in = &s->input;
    uint32_t what = fuzz_byte(in), which = what >> 4 & 3;
    struct far *far = &s->far[which % CONNECTIONS];
    struct owned *owned = &s->owned[which];
    struct pccl__key key;
    switch (what % 16) {
    case 0:
        dial(s, far, which % CONNECTIONS);
        break;
    case 1:
        if (which & 1)
            answer(s, far);
        else
            hang_up(far);
        break;
    case 2:
    case 3:
        post(s, what % 16 == 2);
        break;
    case 4:
        if (owned->posted && !owned->completions) s->channel->ops->cancel(s->channel, &owned->transfer, PCCL_ABORTED);
        break;
    case 5:
        s->channel->ops->expect(s->channel, s->epoch += which);
        break;
    case 6:
        key = pick_key(s);
        key.epoch = s->epoch;
        (void)s->channel->ops->discard(s->channel, &key);
        break;
    case 7:
        key = pick_key(s);
        s->channel->ops->decline(s->channel, &key);
        break;
    case 8:
        s->now_ns += which * 700 * NS_PER_MS;
        break;
    case 9:
        if (which & 1)
            scribble(s, far);
        else
            (void)s->channel->ops->post_notice(s->channel, PCCL__NOTICE_OWNER, NULL, NULL, "abc", which);
        break;
    default:
        if (far->fd >= 0) frame(s, far);
    }
    if (what & 64) run(s);
}

static void begin(struct session *s) {
    bool one_host = fuzz_pick(&s->input, 2);
    struct pccl__tcp_options options = {.id = id_of(1),
                                        .listen_address = "127.0.0.1",
                                        .stripes = CONNECTIONS,
                                        .connect_timeout_ms = 2000,
                                        .host_id = 1,
                                        .ring_bytes = RING_BYTES};
    CHECK(pccl__poll_new(&s->poll) == PCCL_OK);
    CHECK(pccl__tcp_transport_new(&options, s->poll, &s->transport, NULL) == PCCL_OK);
    struct tcp_address address;
    CHECK(pccl__tcp_address_parse(&address, "127.0.0.1", 0));
    CHECK((s->listener = pccl__tcp_socket_listen(&address)) >= 0);
    pccl_member member = {.id = id_of(2),
                          .address = "127.0.0.1",
                          .port = pccl__tcp_socket_port(s->listener),
                          .host_id = one_host ? 1 : 2};
    CHECK(s->transport->ops->open(s->transport, &member, &s->channel) == PCCL_OK);
    s->epoch = 2;
    s->channel->ops->expect(s->channel, s->epoch);
    static uint8_t out[CONNECTIONS][OUT_BYTES];
    for (int i = 0; i < CONNECTIONS; i++) s->far[i] = (struct far){.fd = -1, .out = out[i], .segment.fd = -1};
}

static void end(struct session *s) {
    for (int i = 0; i < 3; i++) run(s);
    s->channel->ops->close(s->channel, PCCL_CLOSED);
    run(s);
    CHECK(s->transport->looks == 0);
    for (int i = 0; i < TRANSFERS; i++) {
        CHECK(s->owned[i].posted == s->owned[i].completions);
        release(&s->owned[i]);
    }
    s->channel->ops->free(s->channel);
    for (int i = 0; i < CONNECTIONS; i++) hang_up(&s->far[i]);
    close(s->listener);
    s->transport->ops->free(s->transport);
    pccl__poll_free(s->poll);
}

/* The lowest descriptor that is free. */
static int free_descriptor(void) {
    int fd = dup(STDERR_FILENO);
    CHECK(fd >= 0);
    close(fd);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct session s = {.input = {data, bytes}, .now_ns = clock_now_ns()};
    int before = free_descriptor();
    begin(&s);
    if (fuzz_pick(&s.input, 4)) dial(&s, &s.far[0], 0);
    run(&s);
    run(&s);
    while (s.input.left > 0) step(&s);
    end(&s);
    CHECK(free_descriptor() == before);
    return 0;
}
