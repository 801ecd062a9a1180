// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <thread>
#include <utility>

namespace tendon::v0::detail {

/// Returns the result of load(), which is called until it finds the file whole: the writer may not
/// have started, or not have finished. It polls, because no shared file system reports changes of
/// another host.
template <class Load>
[[nodiscard]] Result<TensorDict> load_when_whole(const std::filesystem::path& path,
                                                 std::string_view where, Deadline deadline,
                                                 Load load) {
  constexpr std::chrono::nanoseconds kFirstPause = std::chrono::milliseconds(1);
  constexpr std::chrono::nanoseconds kLongestPause = std::chrono::milliseconds(50);
  for (auto pause = kFirstPause;; pause = std::min(pause * 2, kLongestPause)) {
    Result<TensorDict> loaded = load();
    if (loaded || deadline.is_poll()) return loaded;
    const ErrorCode code = loaded.error().code;
    if (code != ErrorCode::file_not_found && code != ErrorCode::corrupt_data) return loaded;
    if (deadline.has_passed()) {
      return Error{ErrorCode::timeout, where,
                   "'" + path.string() + "' was not written in time: " + loaded.error().detail};
    }
    std::this_thread::sleep_for(std::min(pause, deadline.remaining()));
  }
}

}  // namespace tendon::v0::detail
