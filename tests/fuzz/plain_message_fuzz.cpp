// SPDX-License-Identifier: Apache-2.0
// A message of a plain Zenoh peer: its attachment, and behind it its payload. An attachment is read
// as it was written; a payload becomes tensors or an error.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <tendon/memory/storage.hpp>

#include "fabric/plain/plain_codec.hpp"
#include "require.hpp"

namespace {

using namespace tendon::detail;

using tendon::test::require;

const std::shared_ptr<const tendon::Schema>& wanted() {
  static const auto schema =
      tendon::Schema::make({{"a", tendon::DType::u8, {2}}, {"b/c", tendon::DType::f32, {1}}})
          .value();
  return schema;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  const tendon::Bytes input(reinterpret_cast<const std::byte*>(data), size_bytes);
  const auto origin = read_plain_origin(input);
  if (!origin) {
    require(origin.error().code == tendon::ErrorCode::protocol_violation);
  } else if (*origin) {
    require(size_bytes >= sizeof(PlainOrigin));
    require(std::memcmp(&**origin, data, sizeof(PlainOrigin)) == 0);
  }
  const tendon::Bytes payload = input.subspan(std::min(size_bytes, sizeof(PlainOrigin)));
  const auto storage = tendon::Storage::allocate(payload.size()).value();
  if (!payload.empty()) std::memcpy(storage.data(), payload.data(), payload.size());
  (void)from_plain(storage, nullptr);
  if (const auto typed = from_plain(storage, wanted()))
    require(typed->schema()->hash() == wanted()->hash());
  return 0;
}
