// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <tendon/core/result.hpp>
#include <utility>

#include "channel/gpu_answer.hpp"

namespace tendon::v0::detail {

/// Asynchronous sends that were shown and whose tensors a GPU still copies. Their completions wait
/// for the GPU; the pipe's next messages do not.
///
/// Owns:    the conclusion of each, and the answer of its GPU.
/// Threads: the sender's lock is held for every call but is_empty().
/// Errors:  those of the GPU reach the completion.
/// Blocks:  never.
/// Cost:    a load for each.
class CopiedSends {
 public:
  using Conclude = std::function<void(Result<void>)>;
  void add(Conclude conclude, std::shared_ptr<const GpuAnswer> answer) {
    waiting_.push_back({std::move(conclude), std::move(answer)});
    count_.store(waiting_.size());
  }
  /// Concludes those whose GPU has answered; with an error, which is that of the Context, all.
  void conclude(const Result<void>& usable) {
    std::erase_if(waiting_, [&](const Waiting& each) {
      const bool is_over = each.answer->is_over();
      if (!is_over && usable) return false;
      each.conclude(is_over ? each.answer->result() : usable);
      return true;
    });
    count_.store(waiting_.size());
  }
  [[nodiscard]] bool is_empty() const noexcept { return count_.load() == 0; }

 private:
  struct Waiting {
    Conclude conclude;
    std::shared_ptr<const GpuAnswer> answer;
  };
  std::deque<Waiting> waiting_;
  std::atomic<std::size_t> count_{0};
};

}  // namespace tendon::v0::detail
