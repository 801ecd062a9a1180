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
/// the interface `net<n>` with the address `10.77.<n>.<h + 1>`. Nothing of it has a name outside:
/// the kernel removes all of it with the last descriptor and process, however this process ends.
/// Hosts share files, so processes that are to be strangers need runtime directories of their own.
class Network {
 public:
  /// Why there is none here, in words for GTEST_SKIP; nullopt when one can be made.
  [[nodiscard]] static std::optional<std::string> why_not();

  explicit Network(std::uint32_t hosts, std::uint32_t networks = 1);

  [[nodiscard]] std::uint32_t host_count() const {
    return static_cast<std::uint32_t>(hosts_.size());
  }
  [[nodiscard]] static std::string address(std::uint32_t host, std::uint32_t network = 0);
  /// Calls `work` on a thread of that host. Processes that it starts belong there.
  void inside(std::uint32_t host, const std::function<void()>& work) const;
  /// Runs a program of the system on that host; a failure when it fails.
  std::string run(std::uint32_t host, const std::vector<std::string>& words) const;

  /// From now on what comes to `host`, or leaves it, is dropped and counted where `match` (of nft;
  /// empty: everything) is true. Nobody is told.
  void drop(std::uint32_t host, const std::string& match = "") const;
  /// From now on a TCP packet to `host`, for which `match` is true, is answered with a
  /// reset: a connection ends at its peer with the next packet that comes on it, and at `host` with
  /// the next that goes out. Others are not made.
  void reset(std::uint32_t host, const std::string& match) const;
  /// Packets that drop() or reset() took since it was called.
  [[nodiscard]] std::uint64_t dropped_count(std::uint32_t host) const;
  void heal(std::uint32_t host) const;

  /// Pulls the host's cable, or puts it back: its interfaces see that.
  void pull_cable(std::uint32_t host) const;
  void put_cable(std::uint32_t host) const;

 private:
  void set_cables(std::uint32_t host, std::string_view state) const;

  detail::OwnedFd wires_;  // a namespace that has the bridges
  std::vector<detail::OwnedFd> hosts_;
  std::uint32_t networks_;
};

}  // namespace tendon::test
