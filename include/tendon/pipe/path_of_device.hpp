// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tendon/memory/device.hpp>

namespace tendon {
inline namespace v0 {

/// How tensors of one GPU travel to the peer of a pipe, as far as its answers say until now.
struct PathOfDevice {
  Device device;           ///< in this process
  std::string uuid;        ///< as nvidia-smi names it
  std::string peer;        ///< the peer's name
  bool is_direct = false;  ///< the peer reads them on the GPU; else they are staged
  std::string reason;      ///< why they are staged
};

}  // namespace v0
}  // namespace tendon
