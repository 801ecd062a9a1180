// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <array>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "work.hpp"

namespace tendon::torch_extension {

namespace py = pybind11;
using c10d::OpType;
using torch_table::Kind;
using torch_table::Request;
using TensorLists = std::vector<std::vector<at::Tensor>>;
using TensorList = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// Works that may not be finished, so that shutdown() finishes them.
class Pending {
 public:
  void add(c10::intrusive_ptr<Work> work) {
    const std::lock_guard lock(mutex_);
    prune();
    works_.push_back(std::move(work));
  }
  /// Takes the oldest one; null if there is none.
  c10::intrusive_ptr<Work> take() {
    const std::lock_guard lock(mutex_);
    if (works_.empty()) return {};
    auto first = std::move(works_.front());
    works_.pop_front();
    return first;
  }

 private:
  void prune() {
    while (!works_.empty() && works_.front()->over()) works_.pop_front();
  }

  std::mutex mutex_;
  std::deque<c10::intrusive_ptr<Work>> works_;
};

/// The operations of one process group, on a group of Tendon.
///
/// Threads: any, as in torch. Operations start in the order of the calls.
class Backend final : public c10d::Backend {
 public:
  /// `member` is a tendon.torch._groups.Member, which has the Python group.
  Backend(const Table& table, torch_table::Group* group, int rank, int size, milliseconds timeout,
          const std::string& name, std::vector<std::uint64_t> global_ranks, py::object member)
      : c10d::Backend(rank, size),
        group_(std::make_shared<OpenGroup>(table, group)),
        options_(c10::make_intrusive<Options>("tendon", timeout)),
        timeout_(timeout.count()),
        member_(std::move(member)) {
    options_->group_name = name;
    options_->global_ranks_in_group = std::move(global_ranks);
  }

  ~Backend() override {
    if (Py_IsInitialized() == 0) {
      (void)member_.release();
      return;
    }
    const py::gil_scoped_acquire gil;
    member_ = py::object();
  }

  const std::string getBackendName() const override { return "tendon"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  bool supportsSplitting() const override { return true; }
  bool supportsShrinking() const override { return true; }
  bool supportsCoalescing() const override { return false; }
  bool supportsTimeEstimation() const override { return false; }
  bool supportsReconfigure() const override { return false; }
  bool supportsWindow() const override { return false; }
  bool supportsAbortHooks() const override { return false; }
  bool supportsCompletionHooks() const override { return false; }
  bool supportsTensorAlloc(c10::DeviceIndex) override { return false; }
  std::uint64_t getSequenceNumberForGroup() override { return issued_.load(); }
  /// Numbers start at 0 on every rank: there is nothing to agree on.
  void setSequenceNumberForGroup() override {}
  void setTimeout(milliseconds timeout) override {
    timeout_ = timeout.count();
    options_->timeout = timeout;
  }
  c10d::ErrorType getError() override {
    const auto group = open();
    return group->table.has_ended(group->group) ? c10d::ErrorType::COMM_ERROR
                                                : c10d::ErrorType::SUCCESS;
  }

  // Collectives

  WorkPtr allreduce(TensorList& tensors, const c10d::AllreduceOptions& opts) override {
    if (tensors.size() == 1 && tensors[0].is_sparse()) return allreduce_sparse(tensors, opts);
    one(tensors, "tensors");
    return in_place("tendon:all_reduce", OpType::ALLREDUCE, Kind::all_reduce, tensors, opts.timeout,
                    &opts.reduceOp);
  }
  WorkPtr allreduce_coalesced(TensorList& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override {
    return in_place("tendon:all_reduce_coalesced", OpType::ALLREDUCE_COALESCED, Kind::all_reduce,
                    tensors, opts.timeout, &opts.reduceOp);
  }
  WorkPtr allreduce_sparse(TensorList& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr broadcast(TensorList& tensors, const c10d::BroadcastOptions& opts) override {
    one(tensors, "tensors");
    return in_place("tendon:broadcast", OpType::BROADCAST, Kind::broadcast, tensors, opts.timeout,
                    nullptr, opts.rootRank);
  }
  WorkPtr reduce(TensorList& tensors, const c10d::ReduceOptions& opts) override {
    one(tensors, "tensors");
    return in_place("tendon:reduce", OpType::REDUCE, Kind::reduce, tensors, opts.timeout,
                    &opts.reduceOp, opts.rootRank);
  }
  WorkPtr allgather(TensorLists& outputs, TensorList& inputs,
                    const c10d::AllgatherOptions& opts) override {
    const auto& into = blocks(one(outputs, "output lists"), "output tensors");
    Starting starting(*this, "tendon:all_gather", OpType::ALLGATHER, inputs, outputs, opts.timeout);
    starting.add({.kind = Kind::all_gather}, {one(inputs, "inputs")}, false, into, true);
    return starting.work();
  }
  WorkPtr allgather_coalesced(TensorLists& outputs, TensorList& inputs,
                              const c10d::AllgatherOptions& opts) override {
    TENDON_REFUSE_IF(outputs.size() != std::size_t(size_), outputs.size(), " output lists for ",
                     size_, " ranks; legal is one for each rank");
    for (const TensorList& list : outputs) as_many(list, inputs, "output tensors", "inputs");
    Starting starting(*this, "tendon:all_gather_coalesced", OpType::ALLGATHER_COALESCED, inputs,
                      outputs, opts.timeout);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      TensorList into;
      for (const TensorList& list : outputs) into.push_back(list[i]);
      starting.add({.kind = Kind::all_gather}, {inputs[i]}, false, into, true);
    }
    return starting.work();
  }
  WorkPtr all_gather_single(at::Tensor& output, at::Tensor& input,
                            const c10d::AllgatherOptions& opts) override {
    TensorList outputs{output};
    TensorList inputs{input};
    return gather_singles("tendon:all_gather_single", OpType::_ALLGATHER_BASE, outputs, inputs,
                          opts);
  }
  WorkPtr all_gather_single_coalesced(TensorList& outputs, TensorList& inputs,
                                      const c10d::AllgatherOptions& opts) override {
    return gather_singles("tendon:all_gather_single_coalesced",
                          OpType::ALLGATHER_INTO_TENSOR_COALESCED, outputs, inputs, opts);
  }
  WorkPtr gather(TensorLists& outputs, TensorList& inputs,
                 const c10d::GatherOptions& opts) override {
    const TensorList into = opts.rootRank == rank_
                                ? blocks(one(outputs, "output lists"), "output tensors")
                                : TensorList();
    Starting starting(*this, "tendon:gather", OpType::GATHER, inputs, outputs, opts.timeout);
    starting.add({.kind = Kind::gather, .rank = root(opts.rootRank)}, {one(inputs, "inputs")},
                 false, into, true);
    return starting.work();
  }
  WorkPtr scatter(TensorList& outputs, TensorLists& inputs,
                  const c10d::ScatterOptions& opts) override {
    const TensorList mine =
        opts.rootRank == rank_ ? blocks(one(inputs, "input lists"), "input tensors") : TensorList();
    Starting starting(*this, "tendon:scatter", OpType::SCATTER, mine, {outputs}, opts.timeout);
    starting.add({.kind = Kind::scatter, .rank = root(opts.rootRank)}, mine, true,
                 {one(outputs, "outputs")}, false);
    return starting.work();
  }
  WorkPtr reduce_scatter(TensorList& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& opts) override {
    const auto& mine = blocks(one(inputs, "input lists"), "input tensors");
    Starting starting(*this, "tendon:reduce_scatter", OpType::REDUCE_SCATTER, mine, {outputs},
                      opts.timeout);
    Request request{.kind = Kind::reduce_scatter};
    set_op(request, opts.reduceOp);
    starting.add(request, mine, true, {one(outputs, "outputs")}, false);
    return starting.work();
  }
  WorkPtr reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                const c10d::ReduceScatterOptions& opts) override {
    TensorList outputs{output};
    TensorList inputs{input};
    return scatter_singles("tendon:reduce_scatter_single", OpType::_REDUCE_SCATTER_BASE, outputs,
                           inputs, opts);
  }
  WorkPtr reduce_scatter_single_coalesced(TensorList& outputs, TensorList& inputs,
                                          const c10d::ReduceScatterOptions& opts) override {
    return scatter_singles("tendon:reduce_scatter_single_coalesced",
                           OpType::REDUCE_SCATTER_TENSOR_COALESCED, outputs, inputs, opts);
  }
  WorkPtr alltoall(TensorList& outputs, TensorList& inputs,
                   const c10d::AllToAllOptions& opts) override {
    Starting starting(*this, "tendon:all_to_all", OpType::ALLTOALL, inputs, {outputs},
                      opts.timeout);
    starting.add({.kind = Kind::all_to_all}, blocks(inputs, "input tensors"), true,
                 blocks(outputs, "output tensors"), true);
    return starting.work();
  }
  WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input,
                            std::vector<std::int64_t>& output_sizes,
                            std::vector<std::int64_t>& input_sizes,
                            const c10d::AllToAllOptions& opts) override {
    const TensorList into = parts(output, output_sizes, "output");
    const TensorList mine = parts(input, input_sizes, "input");
    Starting starting(*this, "tendon:all_to_all_single", OpType::ALLTOALL_BASE, {input}, {{output}},
                      opts.timeout);
    starting.add({.kind = Kind::all_to_all}, mine, true, into, true);
    return starting.work();
  }
  WorkPtr barrier(const c10d::BarrierOptions& opts) override {
    Starting starting(*this, "tendon:barrier", OpType::BARRIER, {}, {}, opts.timeout);
    starting.add({.kind = Kind::barrier}, {}, false, {}, false);
    return starting.work();
  }
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  // Messages between members

  WorkPtr send(TensorList& tensors, int rank, int tag) override {
    Starting starting(*this, "tendon:send", OpType::SEND, tensors, {}, c10d::kUnsetTimeout);
    for (const at::Tensor& part : parts_of_message(one(tensors, "tensors")))
      starting.add({.kind = Kind::send, .rank = other(rank), .tag = checked(tag)}, {part}, false,
                   {}, false);
    return starting.work();
  }
  WorkPtr recv(TensorList& tensors, int rank, int tag) override {
    return receive("tendon:recv", OpType::RECV, tensors,
                   {.kind = Kind::recv, .rank = other(rank), .tag = checked(tag)});
  }
  WorkPtr recvAnysource(TensorList& tensors, int tag) override {
    TENDON_REFUSE_IF(parts_of_message(one(tensors, "tensors")).size() != 1, "recv of ",
                     tensors[0].nbytes(), " bytes from any rank; a message of more than ",
                     kMostOfMessage, " bytes travels in parts, so name the rank that sends it");
    return receive("tendon:recvAnySource", OpType::RECVANYSOURCE, tensors,
                   {.kind = Kind::recv, .from_any = true, .tag = checked(tag)});
  }

  // Groups and their end

  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& opts) override;
  c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<std::int64_t>& excluded, int flags,
                                           const c10::intrusive_ptr<Options>& opts) override;
  void abort() override {
    const auto group = open();
    group->table.abort(group->group, "abort() of its process group was called");
  }
  /// Finishes the issued operations, as gloo does; callers that wait for a failed one get its
  /// error.
  void shutdown() override;

 private:
  /// A Work while its operations start.
  class Starting {
   public:
    Starting(Backend& backend, const char* title, OpType type, const TensorList& inputs,
             TensorLists outputs, milliseconds timeout)
        : backend_(backend), group_(backend.open()) {
      release_left_over();
      const bool is_message = c10d::isP2POp(type);
      const std::uint64_t sequence = is_message ? 0 : ++backend.issued_;
      if (timeout < milliseconds(0)) timeout = milliseconds(backend.timeout_.load());
      work_ = c10::make_intrusive<Work>(group_, title, type, inputs, std::move(outputs), sequence,
                                        timeout);
    }

    void add(Request request, const TensorList& inputs, bool inputs_are_list,
             const TensorList& outputs, bool outputs_are_list) {
      Lending in;
      Lending out;
      for (const at::Tensor& tensor : inputs) in.add(tensor);
      for (const at::Tensor& tensor : outputs) out.add(tensor);
      request.inputs = in.tensors(inputs_are_list);
      request.outputs = out.tensors(outputs_are_list);
      work_->add(group_->table.start(group_->group, request));
      in.taken();
      out.taken();
    }

    WorkPtr work() {
      work_->begun();
      backend_.pending_.add(work_);
      return work_;
    }

   private:
    Backend& backend_;
    std::shared_ptr<OpenGroup> group_;
    c10::intrusive_ptr<Work> work_;
  };

  [[nodiscard]] std::shared_ptr<OpenGroup> open() const {
    const std::lock_guard lock(group_mutex_);
    TENDON_REFUSE_IF(group_ == nullptr, "this process group was destroyed");
    return group_;
  }

  WorkPtr in_place(const char* title, OpType type, Kind kind, const TensorList& tensors,
                   milliseconds timeout, const c10d::ReduceOp* op, std::int64_t root_rank = 0) {
    Request request{.kind = kind, .rank = root(root_rank)};
    if (op != nullptr) set_op(request, *op);
    Starting starting(*this, title, type, tensors, {tensors}, timeout);
    starting.add(request, tensors, tensors.size() != 1, {}, false);
    return starting.work();
  }

  WorkPtr gather_singles(const char* title, OpType type, const TensorList& outputs,
                         const TensorList& inputs, const c10d::AllgatherOptions& opts) {
    as_many(outputs, inputs, "outputs", "inputs");
    for (std::size_t i = 0; i < inputs.size(); ++i) times(outputs[i], inputs[i]);
    Starting starting(*this, title, type, inputs, {outputs}, opts.timeout);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      starting.add({.kind = Kind::all_gather}, {inputs[i]}, false, {outputs[i]}, false);
    return starting.work();
  }

  WorkPtr scatter_singles(const char* title, OpType type, const TensorList& outputs,
                          const TensorList& inputs, const c10d::ReduceScatterOptions& opts) {
    as_many(outputs, inputs, "outputs", "inputs");
    for (std::size_t i = 0; i < inputs.size(); ++i) times(inputs[i], outputs[i]);
    Request request{.kind = Kind::reduce_scatter};
    set_op(request, opts.reduceOp);
    Starting starting(*this, title, type, inputs, {outputs}, opts.timeout);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      starting.add(request, {inputs[i]}, false, {outputs[i]}, false);
    return starting.work();
  }

  WorkPtr receive(const char* title, OpType type, const TensorList& tensors, Request request) {
    // Its event in the profiler shows the shape of the received tensor, as with gloo.
    Starting starting(*this, title, type, tensors, {tensors}, c10d::kUnsetTimeout);
    for (const at::Tensor& part : parts_of_message(one(tensors, "tensors")))
      starting.add(request, {}, false, {part}, false);
    return starting.work();
  }

  /// A larger tensor is sent in parts whose sizes both ends compute from its size. If the sizes
  /// differ at both ends, the first part reports it. The limit is the default message limit of a
  /// link.
  static constexpr std::uint64_t kMostOfMessage = std::uint64_t{1} << 30;

  static TensorList parts_of_message(const at::Tensor& tensor) {
    check(tensor);
    if (tensor.nbytes() <= kMostOfMessage || !tensor.is_contiguous()) return {tensor};
    const auto count = static_cast<std::int64_t>(tensor.nbytes() / (kMostOfMessage / 2) + 1);
    return tensor.view({-1}).split((tensor.numel() + count - 1) / count);
  }

  static void set_op(Request& request, const c10d::ReduceOp& op) {
    constexpr std::array<std::uint8_t, 9> kNumbers = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    TENDON_REFUSE_IF(op.op_ >= kNumbers.size(), "the reduce operation ", int(op.op_),
                     "; legal are SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR and PREMUL_SUM");
    request.reduce = kNumbers[op.op_];
    if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return;
    const auto* const factor = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
    TENDON_REFUSE_IF(factor == nullptr, "PREMUL_SUM without a factor");
    request.factor = factor->tensor_factor.defined() ? factor->tensor_factor.item<double>()
                                                     : factor->double_factor;
  }

  // Checks of ranks and tensors

  template <class T>
  static const T& one(const std::vector<T>& given, const char* name) {
    TENDON_REFUSE_IF(given.size() != 1, given.size(), " ", name, "; legal is one");
    return given.front();
  }
  const TensorList& blocks(const TensorList& given, const char* name) const {
    TENDON_REFUSE_IF(given.size() != std::size_t(size_), given.size(), " ", name, " for ", size_,
                     " ranks; legal is one for each rank");
    return given;
  }
  static void as_many(const TensorList& these, const TensorList& those, const char* name,
                      const char* other) {
    TENDON_REFUSE_IF(these.size() != those.size(), these.size(), " ", name, " beside ",
                     those.size(), " ", other, "; legal are as many");
  }
  /// Checks that `whole` has as many `part`s as there are ranks.
  void times(const at::Tensor& whole, const at::Tensor& part) const {
    check(whole);
    check(part);
    TENDON_REFUSE_IF(
        whole.numel() != part.numel() * size_ || whole.scalar_type() != part.scalar_type(),
        "a tensor of ", whole.numel(), " elements of ", whole.scalar_type(), " beside one of ",
        part.numel(), " of ", part.scalar_type(), "; legal are one dtype and ", size_,
        " times as many elements, which is ", part.numel() * size_);
  }
  /// Returns views of `whole` along its first dimension, one for each rank.
  TensorList parts(const at::Tensor& whole, std::vector<std::int64_t> sizes,
                   const char* name) const {
    check(whole);
    TENDON_REFUSE_IF(whole.dim() == 0, name, " has no dimension to be cut along");
    const std::int64_t rows = whole.size(0);
    if (sizes.empty()) {
      TENDON_REFUSE_IF(rows % size_ != 0, name, " has ", rows, " rows, which ", size_,
                       " ranks cannot share equally; give split sizes");
      sizes.assign(std::size_t(size_), rows / size_);
    }
    std::int64_t sum = 0;
    bool legal = sizes.size() == std::size_t(size_);
    for (const std::int64_t each : sizes) {
      legal = legal && each >= 0 && each <= rows - sum;
      if (legal) sum += each;
    }
    TENDON_REFUSE_IF(!legal || sum != rows, "the split sizes of ", name, " are ",
                     c10::IntArrayRef(sizes), "; legal are ", size_, " numbers whose sum is its ",
                     rows, " rows");
    return whole.split_with_sizes(sizes);
  }
  std::uint32_t root(std::int64_t rank) const { return member_rank(rank, "the root"); }
  std::uint32_t other(std::int64_t rank) const { return member_rank(rank, "the other end"); }
  std::uint32_t member_rank(std::int64_t rank, const char* name) const {
    TENDON_REFUSE_IF(rank < 0 || rank >= size_, name, " is rank ", rank, "; legal are 0 to ",
                     size_ - 1);
    return static_cast<std::uint32_t>(rank);
  }
  static std::uint32_t checked(int tag) {
    TENDON_REFUSE_IF(tag < 0, "the tag ", tag, "; legal are whole numbers from 0");
    return static_cast<std::uint32_t>(tag);
  }
  milliseconds effective(milliseconds timeout) const {
    return timeout < milliseconds(0) ? milliseconds(timeout_.load()) : timeout;
  }

  mutable std::mutex group_mutex_;
  std::shared_ptr<OpenGroup> group_;  // null after shutdown(); guarded by group_mutex_
  const c10::intrusive_ptr<Options> options_;
  std::atomic<std::int64_t> timeout_;  // [ms]
  std::atomic<std::uint64_t> issued_{0};
  Pending pending_;
  py::object member_;
};

}  // namespace tendon::torch_extension
