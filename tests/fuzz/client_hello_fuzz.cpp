// SPDX-License-Identifier: Apache-2.0
// The first bytes of a stranger at a secure listener. The gate judges them alike however they
// arrive, refuses at the wrong byte, and opens for one length alone.
#include <algorithm>
#include <cstdint>

#include "require.hpp"
#include "secure/client_hello_gate.hpp"
#include "secure/tls_limits.hpp"

namespace {

using tendon::Bytes;
using tendon::test::require;
using namespace tendon::detail::secure;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  const Bytes input = std::as_bytes(std::span(data, size_bytes));
  // Beyond its limit the gate treats each further byte like the first.
  const std::size_t most = std::min(size_bytes, tendon::detail::kMaxClientHelloBytes + 2);
  bool was_whole = false;
  bool was_refused = false;
  for (std::size_t bytes = 0; bytes <= most; ++bytes) {
    const auto arrived = tendon::test::exact_storage(input.first(bytes));
    const auto verdict = look_at_client_hello(arrived.bytes());
    require(verdict || verdict.error().code == tendon::ErrorCode::protocol_violation);
    require(!was_refused || !verdict);
    // No byte may follow a complete hello.
    require(!was_whole || !verdict);
    was_refused = !verdict;
    was_whole = verdict && *verdict == ClientHello::whole;
    require(!was_whole || (bytes >= 9 && bytes <= tendon::detail::kMaxClientHelloBytes));
    if (was_refused) break;
  }
  return 0;
}
