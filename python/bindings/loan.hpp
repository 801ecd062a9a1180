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
  // On a GPU: behind the work of which stream, and of which consumers, its entries are there.
  std::optional<Stream> stream;
  std::shared_ptr<Consumers> consumers;
};

/// The arguments `device` and `stream` of a loan. ValueError for a stream beside host memory.
[[nodiscard]] LoanOptions loan_options_from(nb::handle device, nb::handle stream);
/// Called by the thread that made the options.
[[nodiscard]] LoanHandle make_loan(Loan loan, const LoanOptions& options);

/// The stream on which a loan is to be sent: `wanted`, else its own. It waits for its own and for
/// those of consumers. Nothing for one in host memory, for which `wanted` is a ValueError.
[[nodiscard]] std::optional<Stream> stream_for(const LoanHandle& handle,
                                               const std::optional<Stream>& wanted,
                                               const char* where);

/// A loan while it is sent: its handle is empty, so that no other thread sends it too. The end of
/// this object puts back what was not sent; a send that continues after Ctrl-C keeps it.
///
/// Owns:    the loan, with the calls that by() makes.
/// Threads: it begins and ends with the GIL; its calls run without.
/// Errors:  cancelled: the handle has the loan again.
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

  /// `send(Loan&&, how)` as a call that may outlive this object.
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
    std::atomic_flag is_taken;  // by a call, or for the handle
  };

  const std::shared_ptr<Loan> from_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace tendon::python
