// SPDX-License-Identifier: Apache-2.0
// The places of a benchmark's two processes: one host, or two hosts that a link of a known rate
// joins.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <tendon/core/result.hpp>
#include <tendon/core/words.hpp>
#include <utility>
#include <vector>

#include "core/fd.hpp"

namespace tendon::cli {

enum class BenchLink : std::uint8_t { loopback, veth_1g, veth_10g };
[[nodiscard]] consteval std::array<Word<BenchLink>, 3> words_of(BenchLink) {
  using enum BenchLink;
  return {{{loopback, "loopback"}, {veth_1g, "veth:1g"}, {veth_10g, "veth:10g"}}};
}

/// The process whose CPU takes packets out of the link, both ways.
enum class SoftirqPlace : std::uint8_t { sender, receiver };
TENDON_WORDS(SoftirqPlace, sender, receiver);

/// Two hosts. The hosts of a link `veth` are network namespaces, joined by a pair of interfaces. A
/// token bucket limits each interface. This process moves into one namespace, for good.
///
/// Owns:    the namespace of the other host.
/// Threads: make() is called before there are other threads.
/// Errors:  not_supported, where there can be no namespaces, or a tool is missing.
/// Blocks:  while the tools run.
/// Cost:    some milliseconds.
class BenchHosts {
 public:
  /// Without a `softirq` the kernel chooses the CPU that takes packets.
  [[nodiscard]] static Result<BenchHosts> make(BenchLink link, std::optional<SoftirqPlace> softirq);

  /// The address of this process.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  /// A command that executes the words after it on the other host; empty where there is none.
  [[nodiscard]] std::vector<std::string> other_by() const;

 private:
  explicit BenchHosts(std::string address) : address_(std::move(address)) {}

  std::string address_;
  detail::OwnedFd other_;
};

}  // namespace tendon::cli
