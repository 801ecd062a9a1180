// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>
#include <optional>
#include <tendon/tensor/loan.hpp>
#include <type_traits>
#include <utility>

#include "gpu_order.hpp"

namespace tendon::python {

/// The state of a Python Loan.
struct LoanHandle {
  std::shared_ptr<Loan> loan;
  // On a GPU: the entries are ready after the work of this stream and of the consumers.
  std::optional<Stream> stream;
  std::shared_ptr<Consumers> consumers;
};

/// Reads the arguments `device` and `stream` of a loan. ValueError for a stream with host memory.
[[nodiscard]] LoanOptions loan_options_from(nb::handle device, nb::handle stream);
/// Called by the thread that made the options.
[[nodiscard]] LoanHandle make_loan(Loan loan, const LoanOptions& options);

/// The stream that sends a loan: `wanted`, else its own. It waits for the loan's own stream and for
/// those of consumers. nullopt for host memory, where `wanted` is a ValueError.
[[nodiscard]] std::optional<Stream> stream_for(const LoanHandle& handle,
                                               const std::optional<Stream>& wanted,
                                               const char* where);

/// Holds a loan while it is sent: its handle is empty, so that no other thread sends it too. The
/// destructor puts an unsent loan back; a send that continues after Ctrl-C keeps it.
///
/// Owns:    the loan, shared with the calls that by() makes.
/// Threads: made and destroyed with the GIL; its calls run without it.
/// Errors:  cancelled if the handle has the loan again.
/// Blocks:  never.
/// Cost:    an allocation.
class LeavingLoan {
 public:
  explicit LeavingLoan(std::shared_ptr<Loan> from)
      : from_(std::move(from)), shared_(std::make_shared<Shared>(std::move(*from_))) {}
  LeavingLoan(const LeavingLoan&) = delete;
  LeavingLoan& operator=(const LeavingLoan&) = delete;
  ~LeavingLoan() {
    if (shared_->is_taken.test_and_set(std::memory_order_acquire) || shared_->loan.empty()) return;
    *from_ = std::move(shared_->loan);
  }

  /// Makes a call of `send(Loan&&, how)` that may outlive this object.
  template <class Send>
  [[nodiscard]] auto by(Send send) const {
    return [shared = shared_, send = std::move(send)](
               const auto& how) -> std::invoke_result_t<const Send&, Loan&&, decltype(how)> {
      if (shared->is_taken.test_and_set(std::memory_order_acquire))
        return Error{ErrorCode::cancelled, "loan.send", "the call that sent the loan has ended"};
      auto sent = send(std::move(shared->loan), how);
      shared->is_taken.clear(std::memory_order_release);
      return sent;
    };
  }

 private:
  struct Shared {
    explicit Shared(Loan&& given) : loan(std::move(given)) {}
    Loan loan;
    std::atomic_flag is_taken;  // by a call, or by the destructor
  };

  const std::shared_ptr<Loan> from_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace tendon::python
