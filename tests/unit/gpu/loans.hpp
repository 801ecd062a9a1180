// SPDX-License-Identifier: Apache-2.0
// Loans of pipes whose memory lies on a GPU of the double.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "runtime/context_core.hpp"
#include "support/batches.hpp"
#include "support/cuda/pipe_gpus.hpp"

namespace tendon::test {

inline std::shared_ptr<const Schema> loan_schema(std::int64_t size) {
  return Schema::make({{"x", DType::u8, {size}}, {"y", DType::u8, {100}}}).value();
}

class GpuLoanTest : public GpuPipeTest {
 protected:
  /// Writes at once, in place of a kernel of the program.
  void fill(const Tensor& on_gpu, std::uint64_t seed) {
    void* const room = fake.writes(address(on_gpu), on_gpu.size_bytes());
    fill_pattern({static_cast<std::byte*>(room), on_gpu.size_bytes()}, seed);
  }
  [[nodiscard]] Loan filled(Pipe& pipe, std::uint64_t seed, std::int64_t size,
                            void* stream = kStreamPerThread) {
    Loan loan =
        pipe.loan(loan_schema(size), {.device = kGpu0, .stream = stream}, kPatience).value();
    fill(loan["x"], seed);
    fill(loan["y"], seed + 1);
    return loan;
  }
  testing::AssertionResult has(const TensorDict& received, std::uint64_t seed) {
    if (received["x"].device() == kGpu0 && has_pattern(read(received["x"]).bytes(), seed) &&
        has_pattern(read(received["y"]).bytes(), seed + 1))
      return testing::AssertionSuccess();
    return testing::AssertionFailure() << "it is not the loan of " << seed;
  }
  /// Waits until the answer of the peer about the GPU has arrived.
  void warm_up(PipePair& pair) { warm_up(pair.client, pair.server); }
  void warm_up(Pipe& client, Pipe& server) {
    ASSERT_TRUE(succeeds(client.send(filled(client, 90, 100), kPatience)));
    ASSERT_TRUE(succeeds(server.recv(kPatience)));
  }
  /// A further link of the client, to another Context.
  struct Third {
    Context context;
    Pipe from;
    Pipe to;
  };
  [[nodiscard]] Third third(Context& client) const {
    ContextOptions options = with_way({.name = "third"}, way());
    options.lease = kLongLease;
    Context context = Context::create(options).value();
    Listener listener = Listener::bind(context, "127.0.0.1:0").value();
    Pipe from = Pipe::connect(client, listener.address(), kPatience).value();
    Pipe to = listener.accept(kPatience).value();
    return {std::move(context), std::move(from), std::move(to)};
  }
  static std::uint64_t address(const Tensor& tensor) {
    return reinterpret_cast<std::uint64_t>(tensor.data());
  }
  static std::uint64_t used_bytes(const Context& context) {
    const auto stats = detail::ContextCore::of(context)->memory().passed->stats();
    return stats.empty() ? 0 : stats[0].second.used_bytes;
  }
  [[nodiscard]] static testing::AssertionResult returns(const Context& context) {
    const auto core = detail::ContextCore::of(context);
    if (eventually([&] {
          (void)core->links().collect_returns(detail::LinkTable::Of::all);
          return used_bytes(context) == 0;
        }))
      return testing::AssertionSuccess();
    return testing::AssertionFailure() << used_bytes(context) << " bytes are in use";
  }
};

}  // namespace tendon::test
