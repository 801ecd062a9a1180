// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <tendon/core/result.hpp>
#include <utility>

#include "channel/gpu_answer.hpp"

namespace tendon::v0::detail {

class SendCompletion;

/// Asynchronous sends that were shown and whose tensors a GPU still copies. The next messages of
/// the pipe do not wait for them; their completions do.
///
/// Owns:    shares of the completions.
/// Threads: the sender's lock is held for every call but is_empty().
/// Errors:  those of the GPU reach the completion.
/// Blocks:  never.
/// Cost:    a load for each.
class CopiedSends {
 public:
  void add(std::shared_ptr<SendCompletion> completion, std::shared_ptr<const GpuAnswer> answer) {
    waiting_.push_back({std::move(completion), std::move(answer)});
    count_.store(waiting_.size());
  }
  /// Concludes those whose GPU has answered. With an error, which is that of the Context: all.
  void conclude(const Result<void>& usable);
  [[nodiscard]] bool is_empty() const noexcept { return count_.load() == 0; }

 private:
  struct Waiting {
    std::shared_ptr<SendCompletion> completion;
    std::shared_ptr<const GpuAnswer> answer;
  };
  std::deque<Waiting> waiting_;
  std::atomic<std::size_t> count_{0};
};

}  // namespace tendon::v0::detail
