// SPDX-License-Identifier: Apache-2.0
#include "transport/stream/sealed_input.hpp"

#include <algorithm>
#include <cstring>

#include "secure/record_format.hpp"

namespace tendon::v0::detail {
namespace {

using secure::kMaxRecordBytes;

// A larger read is not cheaper.
constexpr std::size_t kMaxFetchBytes = std::size_t{128} << 10;

MutableBytes memory_of_thread() {
  static thread_local const auto kMemory =
      std::make_unique_for_overwrite<std::byte[]>(kMaxRecordBytes + kMaxFetchBytes);
  return {kMemory.get(), kMaxRecordBytes + kMaxFetchBytes};
}

}  // namespace

StreamIo SealedInput::fetch(ByteStream& below, std::size_t wanted_bytes) {
  const MutableBytes memory = memory_of_thread();
  const std::size_t held = unopened_.size();
  if (held != 0) std::memmove(memory.data(), unopened_.data(), held);
  // Asks for one record more than wanted: the end of the wanted one and what arrived behind it then
  // need one call.
  const std::size_t most =
      std::min(wanted_bytes, kMaxFetchBytes - kMaxRecordBytes) + kMaxRecordBytes;
  const iovec piece{memory.data() + held, most};
  const StreamIo io = below.read({&piece, 1});
  is_drained_ = io.bytes < most && io.inside_bytes == 0;
  unopened_ = memory.first(held + io.bytes);
  plain_ = {};
  is_lent_ = true;
  has_fetched_ |= io.bytes != 0;
  return io;
}

void SealedInput::keep() {
  if (!is_lent_) {
    // Everything was read: no memory is needed.
    if (plain_.empty() && unopened_.empty() && !kept_.empty()) std::vector<std::byte>().swap(kept_);
    return;
  }
  is_lent_ = false;
  std::vector<std::byte> kept;
  kept.reserve(plain_.size() + unopened_.size());
  kept.insert(kept.end(), plain_.begin(), plain_.end());
  kept.insert(kept.end(), unopened_.begin(), unopened_.end());
  const std::size_t plain_bytes = plain_.size();
  kept_ = std::move(kept);
  plain_ = Bytes(kept_).first(plain_bytes);
  unopened_ = MutableBytes(kept_).subspan(plain_bytes);
}

}  // namespace tendon::v0::detail
