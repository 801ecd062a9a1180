// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>

namespace tendon::v0::detail {

/// Checks that this process may have a file of so many bytes; else the error `code`, with `what` in
/// the text. A write beyond RLIMIT_FSIZE would raise SIGXFSZ, which kills.
[[nodiscard]] inline Result<void> check_file_size(std::uint64_t size_bytes, ErrorCode code,
                                                  std::string_view where, std::string_view what) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      size_bytes <= limit.rlim_cur)
    return {};
  return Error{code, where,
               std::string(what) + " of " + std::to_string(size_bytes) +
                   " bytes: files of this process may have " + std::to_string(limit.rlim_cur) +
                   " (raise RLIMIT_FSIZE, ulimit -f)",
               EFBIG};
}

}  // namespace tendon::v0::detail
