/* SPDX-License-Identifier: MIT
 *
 * device.h - tensors of a device, by way of pinned memory of the host.
 *
 * A thread of the engine copies what goes out on a stream of its own, behind what the caller's stream has been given by
 * then, and starts each operation as soon as its data has come; what comes back is copied on another stream as each
 * operation ends. Large tensors that are reduced or broadcast go in pieces, so that copies both ways and the network
 * overlap. These operations have tags of their own, since they start later than the caller's next ones on the host may.
 */
#ifndef PCCL_TORCH_DEVICE_H
#define PCCL_TORCH_DEVICE_H

#include "backend.h"
#include "errand.h"

namespace pccl_torch {

/* The first device that is not the host; null: all lie there. */
std::optional<c10::Device> device_of(const Tensors &tensors);
inline Tensors flat(Tensors tensors) { return tensors; }
Tensors flat(const std::vector<Tensors> &lists);
template <typename Options> Options asynchronous(Options options) {
    options.asyncOp = true;
    return options;
}

/* The tensors of one call, and their copies in the host's memory. */
class Transit : public std::enable_shared_from_this<Transit> {
  public:
    /* In the caller's thread: copies wait for what its stream has been given so far. Results of `errand` are to be on
     * our stream. */
    Transit(c10::intrusive_ptr<Errand> errand, c10::Device device);

    /* On the thread that carries it: a copy in the host's memory, filled if it is an input. */
    at::Tensor host(const at::Tensor &tensor, bool input);
    Tensors host(const Tensors &tensors, bool input);
    std::vector<Tensors> host(const std::vector<Tensors> &lists, bool input);
    /* Until the inputs so far are there. */
    void arrive();
    /* An operation was started that is to bring these back when it ends. */
    void back(const WorkPointer &work, Tensors targets, Tensors hosts);
    /* Starts an operation in place for each piece of `tensor`, which it reads where `input` says so. */
    void in_pieces(const at::Tensor &tensor, bool input, bool output,
                   const std::function<WorkPointer(Tensors &)> &start);

  private:
    const c10::intrusive_ptr<Errand> errand_;
    const c10::Device device_;
    const c10::Stream out_, in_;
    c10::Event called_;
};

/* `call` gets a backend, outputs and inputs, all of the host. */
template <typename Outputs, typename Inputs, typename Call>
WorkPointer Backend::carry_moves(c10d::OpType type, const char *title, Outputs outputs, Inputs inputs,
                                 c10::Device device, Call call) {
    return carry(type, title, flat(outputs), device, [outputs, inputs, call](Backend &host, Transit &transit) mutable {
        Outputs host_outputs = transit.host(outputs, false);
        Inputs host_inputs = transit.host(inputs, true);
        transit.arrive();
        WorkPointer work = call(host, host_outputs, host_inputs);
        transit.back(work, flat(outputs), flat(host_outputs));
    });
}

} // namespace pccl_torch

#endif
