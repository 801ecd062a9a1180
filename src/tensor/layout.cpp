// SPDX-License-Identifier: Apache-2.0
#include <tendon/tensor/layout.hpp>

namespace tendon::v0 {

std::string_view to_string(Layout layout) {
  switch (layout) {
    case Layout::aligned:
      return "aligned";
    case Layout::safetensors:
      return "safetensors";
    case Layout::tensordict:
      return "tensordict";
  }
  return "unknown";
}

}  // namespace tendon::v0
