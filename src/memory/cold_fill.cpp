// SPDX-License-Identifier: Apache-2.0
#include "memory/cold_fill.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace tendon::v0::detail {
namespace {

// The bytes that one fault maps of existing memory, by default: fault_around_bytes of the kernel.
constexpr std::uint64_t kFaultAroundBytes = 64 * 1024;

}  // namespace

bool ColdFill::write(std::uint64_t offset, Bytes bytes) const noexcept {
  if (!file_ || bytes.size() < kFaultAroundBytes) return false;
  for (std::uint64_t done = 0; done < bytes.size();) {
    const Bytes rest = bytes.subspan(done);
    const ssize_t written =
        pwrite(file_.get(), rest.data(), rest.size(), static_cast<off_t>(begin_ + offset + done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    done += static_cast<std::uint64_t>(written);
  }
  const std::byte* const data = memory_.data() + offset;
  for (std::uint64_t at = 0; at < bytes.size(); at += kFaultAroundBytes)
    (void)*static_cast<const volatile std::byte*>(data + at);
  return true;
}

}  // namespace tendon::v0::detail
