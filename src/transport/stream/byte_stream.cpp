// SPDX-License-Identifier: Apache-2.0
#include "transport/stream/byte_stream.hpp"

#include <poll.h>

namespace tendon::v0::detail {

bool ByteStream::has_room() const noexcept {
  pollfd output{fd(), POLLOUT, 0};
  return poll(&output, 1, 0) != 0;
}

}  // namespace tendon::v0::detail
