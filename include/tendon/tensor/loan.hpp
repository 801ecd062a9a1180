// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/memory/device_target.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <utility>

namespace tendon {
inline namespace v0 {

namespace detail {
struct KeptSample;
class LoanedSlot;
class PipeSender;
class PublisherCore;
namespace cuda {
class LoanedDeviceSlot;
}
}  // namespace detail

/// The place of a loan.
///
///   Loan loan = pipe.loan(schema, {.device = Device{DeviceKind::cuda, 0}, .stream = stream}, 1s)
///                   .value();
struct LoanOptions {
  Device device = cpu();
  /// For a loan on a GPU: the stream on which the program fills it. Memory of a dropped loan is
  /// used again after the work that this stream has then. The stream must live until the last
  /// tensor is dropped.
  void* stream = kStreamPerThread;
};

/// A TensorDict whose leaves lie in memory that peers can read without a copy, to be filled, then
/// sent or published.
///
/// Example:
///   const auto schema = Schema::make({{"image", DType::u8, {3, 224, 224}}}).value();
///   Loan loan = pipe.loan(schema, 1s).value();
///   std::ranges::fill(loan["image"].mutable_bytes(), std::byte{0});  // where the peer will read
///   loan.set("label", "a cup");
///   pipe.send(std::move(loan), 1s).value();  // nothing is copied
///
/// Owns:    one slot of a link, or of a publisher's Context, until it is sent or dropped. Sending
///          it elsewhere is `wrong_link`; any pipe or publisher of its Context can send one on a
///          GPU.
/// Threads: a value; one thread at a time.
/// Errors:  as TensorDict; an empty loan returns not_found for every leaf.
/// Blocks:  never.
/// Cost:    sending it copies nothing, whatever its size.
///
/// The memory of a loan is not mapped in a forked child: touching it there is SIGSEGV.
///
/// On a GPU, kernels of the program fill it. They run before the stream that send() or publish()
/// names; if some run on other streams, the program makes that stream wait for them. The program
/// drops an unsent loan after its work is done, or after that work was queued on
/// LoanOptions::stream.
///
/// After a successful send or freeze() it is empty. Tensors taken from it before keep their memory
/// mapped, but the memory belongs to its readers from then on: do not touch it.
class TENDON_API Loan {
 public:
  Loan(Loan&&) noexcept = default;
  Loan& operator=(Loan&&) noexcept = default;
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;
  ~Loan() = default;

  /// The leaf at `path`, writable, contents unspecified until written. Throws as TensorDict does.
  [[nodiscard]] Tensor operator[](std::string_view path) const { return dict_[path]; }
  [[nodiscard]] Result<Tensor> find(std::string_view path) const { return dict_.find(path); }
  [[nodiscard]] const TensorDict& dict() const& noexcept { return dict_; }
  const TensorDict& dict() const&& = delete;
  /// Sets non-tensor data, which travels with the tensors.
  [[nodiscard]] Result<void> try_set(std::string_view path, Value value);
  void set(std::string_view path, Value value) { try_set(path, std::move(value)).value(); }
  /// Takes the batch out of a loan on a GPU; nobody may write it from now on. Pipes and publishers
  /// of its Context send it to any number of peers, as any batch, after the work of the stream that
  /// the call names. Nothing is copied where the peer reads it there. The memory returns when no
  /// peer has it any more, in the order of LoanOptions::stream, which must live until the batch is
  /// dropped. Errors: not_supported in host memory, where a pipe's loan is for one peer: publish
  /// it, or send copies; invalid_argument if it was sent. After an error the loan is unchanged,
  /// else empty.
  [[nodiscard]] Result<TensorDict> freeze() &&;
  /// True after it was sent or frozen.
  [[nodiscard]] bool empty() const noexcept {
    return slot_ == nullptr && sample_ == nullptr && device_slot_ == nullptr;
  }

 private:
  friend class detail::PipeSender;
  friend class detail::PublisherCore;
  Loan(TensorDict dict, std::shared_ptr<detail::LoanedSlot> slot)
      : dict_(std::move(dict)), slot_(std::move(slot)) {}
  Loan(TensorDict dict, std::shared_ptr<detail::KeptSample> sample)
      : dict_(std::move(dict)), sample_(std::move(sample)) {}
  Loan(TensorDict dict, std::shared_ptr<detail::cuda::LoanedDeviceSlot> device_slot)
      : dict_(std::move(dict)), device_slot_(std::move(device_slot)) {}
  void clear() {
    slot_.reset();
    sample_.reset();
    device_slot_.reset();
    dict_ = TensorDict();
  }

  TensorDict dict_;
  std::shared_ptr<detail::LoanedSlot> slot_;                     // of a pipe's link
  std::shared_ptr<detail::KeptSample> sample_;                   // of a publisher
  std::shared_ptr<detail::cuda::LoanedDeviceSlot> device_slot_;  // of a Context, on a GPU
};

}  // namespace v0
}  // namespace tendon
