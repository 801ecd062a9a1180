// SPDX-License-Identifier: Apache-2.0
#include "cuda/uuid.hpp"

#include <cstddef>
#include <string_view>

namespace tendon::v0::detail::cuda {

std::string uuid_text(const Uuid& uuid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[uuid.bytes[i] >> 4];
    text += kDigits[uuid.bytes[i] & 15];
  }
  return text;
}

}  // namespace tendon::v0::detail::cuda
