/* SPDX-License-Identifier: MIT
 *
 * module.cpp - what Python sees of this object: plain functions for ctypes, and operators of torch where its objects
 * pass.
 */
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

#include <unordered_map>

#include "failure.h"
#include "named.h"

namespace pccl_torch {

namespace {

using GroupPointer = c10::intrusive_ptr<c10d::ProcessGroup>;

#define NAME(name) #name " "
constexpr const char *FUNCTIONS = PCCL_TORCH_FUNCTIONS(NAME);
#undef NAME

/* Python's, which takes its lock itself. */
void (*told_end)(int64_t token, int aborted);
int (*asked_part)(int64_t token, const char *name, const char *key, const uint32_t *ranks, size_t count,
                  int64_t timeout_ms, char *text, size_t text_bytes);
int (*asked_meeting)(int64_t token, int64_t members, int64_t place, char *text, size_t text_bytes);

thread_local c10::intrusive_ptr<Backend> *wanted; /* where what Python makes goes, while it is asked for a part */

struct Backends {
    std::mutex mutex;
    std::unordered_map<int64_t, c10::weak_intrusive_ptr<Backend>> by_token;
};

Backends &backends() {
    static auto *made = new Backends;
    return *made;
}

/* What pccl/torch/group.py describes. */
Group group_of(std::string name, std::string key, const std::vector<int64_t> &ranks,
               const std::vector<int64_t> &numbers) {
    if (numbers.size() != 7) fail(PCCL_INVALID, "a group has seven numbers");
    Group group;
    group.name = std::move(name);
    group.key = std::move(key);
    for (int64_t rank : ranks) group.ranks.push_back(static_cast<uint32_t>(rank));
    group.index = static_cast<uint32_t>(numbers[0]);
    group.epoch = static_cast<uint64_t>(numbers[1]);
    group.scope = static_cast<uint64_t>(numbers[2]);
    group.tag = static_cast<uint64_t>(numbers[3]);
    group.timeout_ms = static_cast<uint32_t>(numbers[4]);
    group.flags = static_cast<uint32_t>(numbers[5]);
    group.elastic = numbers[6] != 0;
    return group;
}

c10::intrusive_ptr<Backend> split(int64_t token, const Group &group) {
    char text[PCCL_MESSAGE_BYTES] = "";
    c10::intrusive_ptr<Backend> part;
    wanted = &part;
    int status = asked_part(token, group.name.c_str(), group.key.c_str(), group.ranks.data(), group.ranks.size(),
                            group.timeout_ms, text, sizeof text);
    wanted = nullptr;
    if (!part) fail(status ? static_cast<pccl_status>(status) : PCCL_SYSTEM, text);
    return part;
}

void meet(int64_t token, size_t members, int64_t place) {
    char text[PCCL_MESSAGE_BYTES] = "";
    int status = asked_meeting(token, static_cast<int64_t>(members), place, text, sizeof text);
    if (status) fail(static_cast<pccl_status>(status), text);
}

/* Torch's Python knows no way to hand over a backend of its own but in a group, so it comes in one. */
GroupPointer make(int64_t engine, int64_t token, std::string name, std::string key, std::vector<int64_t> ranks,
                  std::vector<int64_t> numbers) {
    Group group = group_of(std::move(name), std::move(key), ranks, numbers);
    auto carrier =
        c10::make_intrusive<c10d::ProcessGroup>(static_cast<int>(group.index), static_cast<int>(group.size()));
    auto made = c10::make_intrusive<Backend>(
        Engine::at(reinterpret_cast<pccl_engine *>(engine)), std::move(group),
        Backend::Wishes{[token](bool aborted) { told_end(token, aborted); },
                        [token](const Group &part) { return split(token, part); },
                        [token](size_t members, int64_t place) { meet(token, members, place); }});
    if (wanted) *wanted = made;
    carrier->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, made);
    Backends &known = backends();
    std::lock_guard<std::mutex> lock(known.mutex);
    known.by_token.emplace(token, made);
    return carrier;
}

c10::intrusive_ptr<Backend> found(int64_t token) {
    Backends &known = backends();
    std::lock_guard<std::mutex> lock(known.mutex);
    auto at = known.by_token.find(token);
    c10::intrusive_ptr<Backend> backend = at == known.by_token.end() ? nullptr : at->second.lock();
    if (!backend) fail(PCCL_CLOSED, "the group was destroyed");
    return backend;
}

/* A group for that backend alone, with the store of another group. */
GroupPointer named(const GroupPointer &other, int64_t token) {
    return c10::make_intrusive<Named>(other->getStore(), found(token));
}

/* What pccl/torch/native.py says of a pccl_quantization. */
pccl_quantization quantization_of(const std::vector<int64_t> &numbers) {
    if (numbers.size() != 6) fail(PCCL_INVALID, "a quantization has six numbers");
    pccl_quantization made{};
    made.format = static_cast<pccl_format>(numbers[0]);
    made.block = static_cast<uint32_t>(numbers[1]);
    made.stochastic = static_cast<uint8_t>(numbers[2]);
    made.propagate = static_cast<uint8_t>(numbers[3]);
    made.rotate = static_cast<uint8_t>(numbers[4]);
    made.seed = static_cast<uint64_t>(numbers[5]);
    return made;
}

/* A group for one quantized call of the backend that `group` has for `device`. */
GroupPointer quantized(const GroupPointer &group, c10::Device device, std::vector<int64_t> numbers,
                       std::optional<at::Tensor> errors) {
    auto backend = c10::dynamic_intrusive_pointer_cast<Backend>(group->getBackend(device.type()));
    if (!backend) fail(PCCL_UNSUPPORTED, "the group has no backend of pccl's for this device");
    return c10::make_intrusive<Named>(group->getStore(),
                                      backend->quantized(quantization_of(numbers), errors ? *errors : at::Tensor()));
}

void rebind(int64_t engine, int64_t token, std::string name, std::string key, std::vector<int64_t> ranks,
            std::vector<int64_t> numbers) {
    found(token)->rebind(Engine::at(reinterpret_cast<pccl_engine *>(engine)),
                         group_of(std::move(name), std::move(key), ranks, numbers));
}

/* Access to members that torch up to 2.13 keeps constant. */
struct Opened : c10d::ProcessGroup {
    static void renumber(c10d::ProcessGroup &group, int rank, int size) {
        const_cast<int &>(group.*(&Opened::rank_)) = rank;
        const_cast<int &>(group.*(&Opened::size_)) = size;
    }
};

void renumber(const GroupPointer &group, int64_t rank, int64_t size) {
    Opened::renumber(*group, static_cast<int>(rank), static_cast<int>(size));
}

} // namespace

TORCH_LIBRARY(pccl_torch, library) {
    library.def("backend(int engine, int token, str name, str key, int[] ranks, int[] numbers) -> "
                "__torch__.torch.classes.c10d.ProcessGroup",
                make);
    library.def("named(__torch__.torch.classes.c10d.ProcessGroup other, int token) -> "
                "__torch__.torch.classes.c10d.ProcessGroup",
                named);
    library.def("quantized(__torch__.torch.classes.c10d.ProcessGroup group, Device device, int[] numbers, "
                "Tensor? errors) -> __torch__.torch.classes.c10d.ProcessGroup",
                quantized);
    library.def("rebind(int engine, int token, str name, str key, int[] ranks, int[] numbers) -> ()", rebind);
    library.def("renumber(__torch__.torch.classes.c10d.ProcessGroup group, int rank, int size) -> ()", renumber);
}

} // namespace pccl_torch

using namespace pccl_torch;

/* Which sources this object is made of; it is looked for in the file before that is loaded. */
extern "C" __attribute__((visibility("default"))) const char pccl_torch_sources[];
const char pccl_torch_sources[] = "pccl_torch sources " PCCL_TORCH_SOURCES;

/* The functions whose addresses pccl_torch_bind takes, in that order, each with a space behind it. */
extern "C" __attribute__((visibility("default"))) const char *pccl_torch_functions() { return FUNCTIONS; }

/* 0 if the structs of the C API are of the sizes that this object was compiled for. */
extern "C" __attribute__((visibility("default"))) int pccl_torch_bind(void *const *addresses, const size_t *sizes,
                                                                      decltype(told_end) told,
                                                                      decltype(asked_part) asked,
                                                                      decltype(asked_meeting) met) {
    if (sizes[0] != sizeof(pccl_call) || sizes[1] != sizeof(pccl_info) || sizes[2] != sizeof(pccl_error)) return 1;
    size_t at = 0;
#define TAKE(name) api.name = reinterpret_cast<decltype(api.name)>(addresses[at++]);
    PCCL_TORCH_FUNCTIONS(TAKE)
#undef TAKE
    told_end = told;
    asked_part = asked;
    asked_meeting = met;
    return 0;
}

/* 1: whoever was inside that engine has left; it may be freed. */
extern "C" __attribute__((visibility("default"))) int pccl_torch_close(void *engine) {
    return Engine::close(static_cast<pccl_engine *>(engine));
}
