// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <tendon/core/result.hpp>
#include <vector>
#include <zmq.hpp>

#include "session/machine.hpp"
#include "session/socket_names.hpp"

namespace tendon::v0::detail {

/// The names of a controller's sockets in the runtime directory. Workers learn a name, and form the
/// path by themselves: a name therefore stays when the directory changes.
///
/// Owns:    the names, until remove().
/// Threads: those of the sockets, which is one at a time.
/// Errors:  those of bind(); later ones are logged, and tried again.
/// Blocks:  never.
/// Cost:    look(): some system calls every kLookAtDirectoryEvery. A socket that is bound once more
///          keeps its former descriptor, because ZeroMQ ends its connections with it.
class IpcNames {
 public:
  IpcNames() : asked_(asked_runtime_directory()) {}

  /// Binds a socket of ZeroMQ under a new name. Throws as zmq::socket_t::bind().
  [[nodiscard]] Result<std::string> bind(zmq::socket_t& socket);
  /// Makes this socket replace the one that was bound as number `which`. Throws likewise.
  [[nodiscard]] Result<void> give(std::size_t which, zmq::socket_t& socket);
  /// Checks the sockets, in the order of their bind(). Each whose name is missing, or is not in the
  /// present directory, is bound there as well. Does nothing if it has checked a moment ago.
  void look(std::array<zmq::socket_t*, 3> sockets);
  void remove();

 private:
  struct Name {
    std::string name;
    std::string path;
    FileId file;
  };
  [[nodiscard]] static Result<Name> bind_in(const std::string& directory, const std::string& name,
                                            zmq::socket_t& socket);

  std::string asked_;
  std::vector<Name> names_;
  std::string refusal_;  // as it was logged
  std::chrono::steady_clock::time_point next_look_ =
      std::chrono::steady_clock::now() + kLookAtDirectoryEvery;
};

}  // namespace tendon::v0::detail
