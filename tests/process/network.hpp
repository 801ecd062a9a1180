// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/fd.hpp"
#include "process/command.hpp"

namespace tendon::test {

/// Hosts that are network namespaces, joined by networks that are bridges. On network n host h has
/// the interface `net<n>` with the address `10.77.<n>.<h + 1>`. None of them has a name outside:
/// the kernel removes them with the last descriptor and process, however this process ends. Hosts
/// share files, so processes of different hosts need runtime directories of their own.
class Network {
 public:
  /// Why no network can be made here, in words for GTEST_SKIP; nullopt when one can be made.
  [[nodiscard]] static std::optional<std::string> why_not();

  explicit Network(std::uint32_t hosts, std::uint32_t networks = 1);

  [[nodiscard]] std::uint32_t host_count() const {
    return static_cast<std::uint32_t>(hosts_.size());
  }
  [[nodiscard]] static std::string address(std::uint32_t host, std::uint32_t network = 0);
  /// Calls `work` on a thread of that host. Processes that it starts belong to the host.
  void inside(std::uint32_t host, const std::function<void()>& work) const;
  /// Runs a program of the system on that host; a failure of the program fails the test.
  std::string run(std::uint32_t host, const std::vector<std::string>& words) const;

  /// From now on packets to or from `host` are dropped and counted where `match` (of nft; empty:
  /// everything) is true. The sender gets no notice.
  void drop(std::uint32_t host, const std::string& match = "") const;
  /// From now on a TCP packet to `host` for which `match` is true is answered with a reset. A
  /// connection ends at its peer with the peer's next packet, and at `host` with its own next
  /// packet. New connections fail.
  void reset(std::uint32_t host, const std::string& match) const;
  /// Packets that drop() or reset() took since it was called.
  [[nodiscard]] std::uint64_t dropped_count(std::uint32_t host) const;
  void heal(std::uint32_t host) const;

  /// Pulls the host's cable, or plugs it in again: its interfaces notice.
  void pull_cable(std::uint32_t host) const;
  void put_cable(std::uint32_t host) const;

 private:
  void set_cables(std::uint32_t host, std::string_view state) const;

  detail::OwnedFd wires_;  // a namespace that has the bridges
  std::vector<detail::OwnedFd> hosts_;
  std::uint32_t networks_;
};

}  // namespace tendon::test
