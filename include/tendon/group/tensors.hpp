// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <tendon/core/export.hpp>
#include <tendon/tensor/tensor.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <variant>
#include <vector>

namespace tendon {
inline namespace v0 {

/// The tensors of a collective: one, several, or all leaves of one or more TensorDicts. Several
/// travel together, as one operation. Made by conversion where a collective is called; it refers to
/// its arguments.
///
/// Example:
///   Tensor one = Tensor::zeros(DType::f32, {1024}).value();
///   std::vector<Tensor> several = {one, Tensor::zeros(DType::bf16, {16, 16}).value()};
///   group.all_reduce(one, ReduceOp::sum, 10s).value();
///   group.all_reduce(several, ReduceOp::sum, 10s).value();  // as one operation
///   group.broadcast(batch, GroupRank{0}, 10s).value();      // all leaves of a TensorDict
///
/// Owns:    nothing: the arguments live until the call returns (an `_async` call takes shares of
///          their storage before it returns).
/// Threads: a value.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a pointer.
class TENDON_API Tensors {
 public:
  Tensors(const Tensor& one) : what_(&one) {}        // NOLINT(google-explicit-constructor)
  Tensors(const TensorDict& dict) : what_(&dict) {}  // NOLINT(google-explicit-constructor)
  Tensors(std::span<const Tensor> several)           // NOLINT(google-explicit-constructor)
      : what_(several) {}
  Tensors(const std::vector<Tensor>& several)  // NOLINT(google-explicit-constructor)
      : what_(std::span<const Tensor>(several)) {}
  Tensors(std::span<const TensorDict> several)  // NOLINT(google-explicit-constructor)
      : what_(several) {}
  Tensors(const std::vector<TensorDict>& several)  // NOLINT(google-explicit-constructor)
      : what_(std::span<const TensorDict>(several)) {}

  using What = std::variant<const Tensor*, const TensorDict*, std::span<const Tensor>,
                            std::span<const TensorDict>>;
  [[nodiscard]] const What& what() const noexcept { return what_; }

 private:
  What what_;
};

}  // namespace v0
}  // namespace tendon
