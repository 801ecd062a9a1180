// SPDX-License-Identifier: Apache-2.0
// The messages between the HTTP front and the controller: PROTOCOL.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/bytes.hpp>
#include <tendon/tensor/value.hpp>
#include <variant>

#include "controller/request.hpp"

namespace engine {

struct Submit {
  Request request;
};
struct Cancel {
  std::string id;
};
struct Finish {
  std::string id;
};
struct Malformed {
  std::optional<std::string> id;  ///< if it was readable
  std::string message;
};
using FrontMessage = std::variant<Submit, Cancel, Finish, Malformed>;

/// Parses one untrusted message; ignores unknown fields.
[[nodiscard]] FrontMessage parse_front_message(tendon::Bytes json);

[[nodiscard]] std::string accepted_message(std::string_view id);
[[nodiscard]] std::string refused_message(const std::optional<std::string>& id,
                                          const Refusal& refusal);
[[nodiscard]] std::string message_of(const Notice& notice);

}  // namespace engine
