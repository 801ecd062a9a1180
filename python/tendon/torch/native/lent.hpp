// SPDX-License-Identifier: Apache-2.0
// Wraps torch's tensors for Tendon.
#pragma once

#include <ATen/ATen.h>
#include <ATen/DLConvertor.h>
#include <ATen/dlpack.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "table.hpp"

namespace tendon::torch_extension {

/// A tensor while Tendon holds it. Tendon's threads never take the GIL, which the end of a tensor
/// may need. They push it on a stack instead, which the next call of torch empties.
struct Lent {
  DLManagedTensorVersioned managed{};
  at::Tensor tensor;
  Lent* next = nullptr;
};

inline std::atomic<Lent*> left_over{nullptr};

inline void leave(DLManagedTensorVersioned* managed) {
  auto* const lent = static_cast<Lent*>(managed->manager_ctx);
  Lent* top = left_over.load(std::memory_order_relaxed);
  do {
    lent->next = top;
  } while (!left_over.compare_exchange_weak(top, lent, std::memory_order_release,
                                            std::memory_order_relaxed));
}

inline void release_left_over() {
  if (left_over.load(std::memory_order_relaxed) == nullptr) return;
  Lent* next = left_over.exchange(nullptr, std::memory_order_acquire);
  while (next != nullptr) delete std::exchange(next, next->next);
}

#define TENDON_REFUSE_IF(condition, ...) \
  TORCH_CHECK_WITH(DistBackendError, !(condition), __VA_ARGS__)

inline void check(const at::Tensor& tensor) {
  TENDON_REFUSE_IF(!tensor.defined(), "a tensor is undefined");
  TENDON_REFUSE_IF(!tensor.device().is_cpu(), "a tensor on ", tensor.device(),
                   "; the backend 'tendon' moves tensors on the CPU. For a GPU beside it: "
                   "init_process_group('cpu:tendon,cuda:nccl')");
  TENDON_REFUSE_IF(tensor.layout() != at::kStrided, "a tensor of layout ", tensor.layout(),
                   "; legal are dense ones, and sparse COO ones in all_reduce");
  TENDON_REFUSE_IF(tensor.is_quantized(), "a quantized tensor of ", tensor.scalar_type(),
                   "; its int_repr() is a tensor of whole numbers");
  TENDON_REFUSE_IF(tensor.is_conj(),
                   "a tensor whose memory holds its conjugate; resolve_conj() "
                   "makes one that holds its elements");
  TENDON_REFUSE_IF(tensor.is_neg(),
                   "a tensor whose memory holds its negative; resolve_neg() makes "
                   "one that holds its elements");
}

inline DLDataType type_of(const at::Tensor& tensor) {
  try {
    return at::getDLDataType(tensor);
  } catch (const c10::Error& error) {
    TENDON_REFUSE_IF(true, "a tensor of ", tensor.scalar_type(), ", which Tendon does not know");
  }
  return {};
}

/// Tensors on their way to start(), which takes ownership; otherwise this destroys them.
class Lending {
 public:
  Lending() = default;
  Lending(const Lending&) = delete;
  Lending& operator=(const Lending&) = delete;
  ~Lending() {
    for (void* const managed : lent_)
      delete static_cast<Lent*>(static_cast<DLManagedTensorVersioned*>(managed)->manager_ctx);
  }

  void add(const at::Tensor& tensor) {
    check(tensor);
    auto lent = std::make_unique<Lent>();
    lent->tensor = tensor;
    DLManagedTensorVersioned& managed = lent->managed;
    managed.version = {1, 0};
    managed.manager_ctx = lent.get();
    managed.deleter = leave;
    managed.dl_tensor.data = tensor.data_ptr();
    managed.dl_tensor.device = {DLDeviceType::kDLCPU, 0};
    managed.dl_tensor.ndim = static_cast<std::int32_t>(tensor.dim());
    managed.dl_tensor.dtype = type_of(tensor);
    // start() copies the shape and strides.
    managed.dl_tensor.shape = const_cast<std::int64_t*>(tensor.sizes().data());
    managed.dl_tensor.strides = const_cast<std::int64_t*>(tensor.strides().data());
    lent_.push_back(&lent.release()->managed);
  }

  [[nodiscard]] torch_table::Tensors tensors(bool is_list) const {
    return {lent_.data(), lent_.size(), is_list};
  }
  void taken() { lent_.clear(); }

 private:
  std::vector<void*> lent_;
};

}  // namespace tendon::torch_extension
