// SPDX-License-Identifier: Apache-2.0
// An announcement of a stranger. If it can be read, it can be announced again with the same
// meaning. It is the only key with that meaning, apart from the parts of a qos that only newer
// peers know.
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "fabric/keys/announcement.hpp"
#include "require.hpp"

namespace {

using namespace tendon::detail;

using tendon::test::require;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  const std::string_view input(reinterpret_cast<const char*>(data), size_bytes);
  const auto read = parse_announcement(input);
  if (!read) {
    require(read.error().code == tendon::ErrorCode::protocol_violation);
    require(!read.error().detail.empty());
    return 0;
  }
  const auto key = std::visit([](const auto& one) { return to_key(one); }, *read).value();
  require(parse_announcement(key.text()).value() == *read);
  require(key.text().size() <= input.size());
  require(std::holds_alternative<EntityAnnouncement>(*read) || key.text() == input);
  if (key.text().size() == input.size()) require(key.text() == input);
  return 0;
}
