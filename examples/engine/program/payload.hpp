// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <google/protobuf/message_lite.h>

#include <memory>
#include <string>
#include <tendon/memory/storage.hpp>

namespace engine {

/// Makes the payload of a step or of its outputs.
[[nodiscard]] inline tendon::Storage payload_of(const google::protobuf::MessageLite& message) {
  const auto kept = std::make_shared<std::string>(message.SerializeAsString());
  return tendon::Storage(kept, reinterpret_cast<std::byte*>(kept->data()), kept->size(),
                         tendon::Access::read_only);
}

}  // namespace engine
