// SPDX-License-Identifier: Apache-2.0
// Messages that arrive through a flow of the control plane, a socket of ZeroMQ. A byte decides the
// length of each (0: all the rest). A message that is taken can be written again with the same
// meaning; each number is handed out once, in order, whatever was sent.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tendon/control/limits.hpp>
#include <tendon/core/parallel_layout.hpp>

#include "control/flows/flow_receiver.hpp"
#include "control/flows/step_message.hpp"
#include "control/machine/step_ledger.hpp"
#include "require.hpp"

namespace {

using namespace tendon::detail;
using tendon::Bytes;
using tendon::ErrorCode;

using tendon::test::require;

const RosterId kExpected{std::string(kRunIdBytes, 'r'), 1};

std::optional<tendon::v1::StepMessage> read(Bytes bytes) {
  auto message = decode(bytes, kExpected);
  if (!message) {
    const ErrorCode code = message.error().code;
    require(code == ErrorCode::corrupt_data || code == ErrorCode::version_mismatch ||
            code == ErrorCode::protocol_violation || code == ErrorCode::message_too_large);
    require(!message.error().detail.empty());
    return std::nullopt;
  }
  const auto again = encode(*message);
  const auto read_again = decode(tendon::as_bytes(*again), kExpected);
  require(read_again.has_value() && *encode(*read_again) == *again);
  require(payload_of(*message).size_bytes() == message->payload().size());
  return *std::move(message);
}

/// One flow at its receiver.
class Flow {
 public:
  void take(tendon::v1::StepMessage message) {
    const std::uint64_t sequence = message.sequence();
    (void)flow_.take(sequence, std::move(message));
    if (const auto missing = flow_.missing_before_parked())
      require(missing->first <= missing->last && missing->first > flow_.applied());
    while (auto next = flow_.next()) {
      require(next->sequence() == ++given_);
      const std::uint64_t id = next->schedule_id();
      const bool here = steps_.has(id);
      require(steps_.add_microbatch(id) == here);
      const bool added = steps_.add({.schedule_id = id,
                                     .rank = {next->sender_rank()},
                                     .payload = payload_of(*next),
                                     .agreement = next->agreement()});
      require(here || !added);
    }
    require(flow_.applied() == given_);
  }

 private:
  FlowReceiver<tendon::v1::StepMessage> flow_;
  std::uint64_t given_ = 0;
  StepLedger steps_ = [] {
    StepLedger steps(tendon::ParallelLayout::make({.pipeline = 2}).value());
    for (const std::uint64_t id : {1, 2, 3}) steps.begin(id);
    return steps;
  }();
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  Bytes input = std::as_bytes(std::span(data, size_bytes));
  Flow flow;
  while (!input.empty()) {
    const auto length = static_cast<std::size_t>(input.front());
    input = input.subspan(1);
    const Bytes bytes = length == 0 ? input : input.first(std::min(length, input.size()));
    input = input.subspan(bytes.size());
    if (auto message = read(bytes)) flow.take(*std::move(message));
  }
  return 0;
}
