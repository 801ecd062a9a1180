// SPDX-License-Identifier: Apache-2.0
// The parts that the benchmarks share: the machine card, percentiles, memcpy, and the connection to
// the second process.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/core/words.hpp>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/runtime/context.hpp>
#include <tendon/tensor/value.hpp>
#include <vector>

#include "cli/process.hpp"
#include "cli/verbs.hpp"

namespace tendon::cli {

/// A benchmark that takes longer than this for one row, or a collective for one call, has hung.
[[nodiscard]] inline Deadline row_deadline() { return std::chrono::minutes(5); }

/// CPU, cores, kernel, version: a figure means nothing without them.
[[nodiscard]] Value::Map machine_card();
/// The document that every benchmark prints.
[[nodiscard]] Value::Map benchmark_document(std::string_view benchmark, Value::List results);

[[nodiscard]] inline double elapsed_us(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

/// The percentile of sorted samples by nearest rank; 0 without samples.
[[nodiscard]] double percentile(const std::vector<double>& sorted, double percent);

/// A row of a benchmark of waiting, in the shape of every row: nothing is moved, so it has no bytes
/// and no rate. `sorted_us`: one latency a round [us].
[[nodiscard]] Value::Map latency_row(std::string_view path, std::string_view mode,
                                     const std::vector<double>& sorted_us);

/// Measures one memcpy of `size_bytes` between two touched buffers [us, median].
[[nodiscard]] Result<double> memcpy_us(std::uint64_t size_bytes);

/// A parameter that this program passed to its own child; throws invalid_argument when it is
/// missing.
[[nodiscard]] const Value& parameter(const Value& parameters, std::string_view key);
/// The same for a parameter that is the word of an enumerator.
template <class Enum>
[[nodiscard]] Enum choice(const Value& parameters, std::string_view key) {
  const std::string& word = parameter(parameters, key).as_string();
  if (const auto value = parse_word<Enum>(word)) return *value;
  throw Exception(Error{ErrorCode::invalid_argument, "cli.bench",
                        fmt::format("{} is '{}'; legal are {}", key, word, legal_words<Enum>())});
}

/// The second process's end of a benchmark.
struct ParentLink {
  Context context;
  Pipe pipe;
};
/// Connects to the process that called start_peer().
[[nodiscard]] Result<ParentLink> connect_to_parent(const Value& parameters);

/// This process's end of a benchmark: a listener, the child that connects to it, the pipe.
struct PeerLink {
  Context context;
  Listener listener;
  PeerProcess process;
  Pipe pipe;
};
/// The place of a second process, and the protection of the pipe to it.
struct PeerPlace {
  std::string host = "127.0.0.1";  ///< where this process listens
  std::vector<std::string> by{};   ///< executes the second process, as PeerProcess::start() says
  /// Both ends load it. Without it the pipe is local, whatever the environment says.
  std::optional<SecurityOptions> security{};
};
/// Starts a peer in `role` and accepts its pipe; adds to the parameters those that
/// connect_to_parent() reads.
[[nodiscard]] Result<PeerLink> start_peer(std::string_view role, Value::Map parameters,
                                          ContextOptions options, const PeerPlace& place = {});

}  // namespace tendon::cli
