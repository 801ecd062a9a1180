// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostream>
#include <tendon/core/export.hpp>

namespace tendon {
inline namespace v0 {

/// Counts of a pipe since it was made, at this end only.
struct PipeStats {
  std::uint64_t messages_sent = 0;
  std::uint64_t bytes_sent = 0;  ///< payload
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t loans_sent = 0;  ///< sent without a copy
  std::uint64_t copies = 0;      ///< messages copied by this end, for whatever reason
  std::uint64_t bytes_copied = 0;
  std::uint64_t copied_inline = 0;  ///< small messages, copied instead of lent
  std::uint64_t copied_low_credit =
      0;  ///< received while too many slots were held: copied instead of lent
  std::uint64_t copied_other_link = 0;  ///< sent on although they lay in another link's slots
  std::uint64_t copies_d2h = 0;         ///< messages copied from a GPU to host memory
  std::uint64_t bytes_d2h = 0;
  std::uint64_t copies_h2d = 0;  ///< messages copied from host memory to a GPU, as received
  std::uint64_t bytes_h2d = 0;
  std::uint64_t copies_d2d = 0;  ///< messages copied within a GPU
  std::uint64_t bytes_d2d = 0;
  std::uint64_t incomplete = 0;  ///< lost with their sender before its GPU had finished them
  std::uint64_t schemas_announced = 0;
  std::uint64_t waits = 0;    ///< calls that had to wait
  std::uint64_t dropped = 0;  ///< unread messages dropped by cancel() or close()

  friend TENDON_API std::ostream& operator<<(std::ostream& out, const PipeStats& stats);
};

}  // namespace v0
}  // namespace tendon
