// SPDX-License-Identifier: Apache-2.0
// A replay buffer keeps everything it receives. At first it keeps views on the sender's memory.
// Before the sender runs out of slots, further messages are copied into private memory, and each
// copy is counted: the stream never stops for a consumer that keeps messages. Over tcp the receiver
// owns the memory of every message, so nothing is copied for this reason.
//
// Prints:
// kept 256 transitions, every byte intact
// 62 stayed where they arrived, 194 were copied because credit was low (copied_low_credit)
// released; the next 10 stayed where they arrived: 0 further copies
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <tendon/tendon.hpp>
#include <thread>
#include <vector>

using namespace tendon;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t kTransitions = 256;
constexpr std::int64_t kMore = 10;

std::shared_ptr<const Schema> transition_schema() {
  return Schema::make({{"observation", DType::u8, {4, 84, 84}},
                       {"action", DType::i64, {}},
                       {"reward", DType::f32, {}}})
      .value();
}

std::uint8_t pixel_of(std::int64_t number) { return static_cast<std::uint8_t>(number * 37); }

void feed(std::string_view address) {
  Context context = Context::create({.name = "actor"}).value();
  Pipe pipe = Pipe::connect(context, address, 5s).value();
  const auto schema = transition_schema();
  for (std::int64_t number = 0; number < kTransitions + kMore; ++number) {
    Loan transition = pipe.loan(schema, 10s).value();
    std::ranges::fill(transition["observation"].span<std::uint8_t>(), pixel_of(number));
    transition["action"].set_item<std::int64_t>({}, number);
    transition["reward"].set_item<float>({}, static_cast<float>(number) / 2);
    pipe.send(std::move(transition), 10s).value();
  }
  pipe.close(10s).value();
}

bool intact(const TensorDict& transition, std::int64_t number) {
  const auto pixels = transition["observation"].span<const std::uint8_t>();
  return transition["action"].item<std::int64_t>() == number &&
         transition["reward"].item<float>() == static_cast<float>(number) / 2 &&
         std::ranges::all_of(pixels, [&](std::uint8_t pixel) { return pixel == pixel_of(number); });
}

int run() {
  Context context = Context::create({.name = "learner"}).value();
  Listener listener = Listener::bind(context, "127.0.0.1:0").value();
  std::jthread actor([address = listener.address()] {
    try {
      feed(address);
    } catch (const Exception& failure) {
      std::cerr << failure.error().message() << "\n";  // the learner gets peer_lost or a timeout
    }
  });

  Pipe pipe = listener.accept(5s).value();
  std::vector<TensorDict> buffer;
  for (std::int64_t number = 0; number < kTransitions; ++number)
    buffer.push_back(pipe.recv(10s).value());
  for (std::int64_t number = 0; number < kTransitions; ++number) {
    if (intact(buffer[static_cast<std::size_t>(number)], number)) continue;
    std::cout << "transition " << number << " is damaged\n";
    return 1;
  }
  const std::uint64_t copied = pipe.stats().copied_low_credit;
  std::cout << "kept " << buffer.size() << " transitions, every byte intact\n"
            << buffer.size() - copied << " stayed where they arrived, " << copied
            << " were copied because credit was low (copied_low_credit)\n";

  buffer.clear();  // returns every lent slot
  for (std::int64_t number = kTransitions; number < kTransitions + kMore; ++number)
    if (!intact(pipe.recv(10s).value(), number)) return 1;
  std::cout << "released; the next " << kMore
            << " stayed where they arrived: " << pipe.stats().copied_low_credit - copied
            << " further copies\n";
  return 0;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const Exception& failure) {
    std::cerr << failure.error().message() << "\n";
    return error_info(failure.code()).exit_code;
  }
}
