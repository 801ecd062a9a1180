// SPDX-License-Identifier: Apache-2.0
//
// Measures the cost of sealing a record of a secure link, for each sealer. Opening one costs the
// same.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "secure/record_protection.hpp"

namespace tendon::v0::detail::secure {
namespace {

void seal_record(benchmark::State& state) {
  auto protection = RecordProtection::make({}, static_cast<SealerKind>(state.range(1)));
  if (!protection) return state.SkipWithError("this build or processor has no such sealer");
  const std::vector<std::byte> memory(static_cast<std::size_t>(state.range(0)), std::byte{7});
  const Bytes content(memory);
  std::vector<std::byte> record(content.size() + kRecordOverheadBytes);
  for ([[maybe_unused]] auto round : state) {
    benchmark::DoNotOptimize(
        protection->seal(ContentType::application_data, std::span(&content, 1), record));
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"bytes", "sealer"});
  for (const auto kind : {SealerKind::ipsec_mb, SealerKind::openssl})
    for (const std::int64_t bytes : {64, 256, 1024, 4096, 16'384})
      benchmark->Args({bytes, static_cast<std::int64_t>(kind)});
}
BENCHMARK(seal_record)->Apply(sizes);

}  // namespace
}  // namespace tendon::v0::detail::secure
