// SPDX-License-Identifier: Apache-2.0
#include "control/flows/ipc_names.hpp"

#include <tendon/observe/log.hpp>
#include <utility>

namespace tendon::v0::detail {

Result<IpcNames::Name> IpcNames::bind_in(const std::string& directory, const std::string& name,
                                         zmq::socket_t& socket) {
  std::string path = directory + '/' + name;
  TENDON_TRY(file, name_socket(path, [&](const std::string& unnamed) -> Result<void> {
               socket.bind("ipc://" + unnamed);
               return {};
             }));
  return Name{name, std::move(path), file};
}

Result<std::string> IpcNames::bind(zmq::socket_t& socket) {
  TENDON_TRY(directory, runtime_directory(asked_));
  TENDON_TRY(token, random_nonce());
  TENDON_TRY(bound, bind_in(directory, to_hex(token), socket));
  names_.push_back(std::move(bound));
  return names_.back().name;
}

Result<void> IpcNames::give(std::size_t which, zmq::socket_t& socket) {
  TENDON_TRY(directory, runtime_directory(asked_));
  Name& known = names_[which];
  TENDON_TRY(bound, bind_in(directory, known.name, socket));
  if (bound.path != known.path) remove_name(known.path, known.file);
  known = std::move(bound);
  return {};
}

void IpcNames::look(std::array<zmq::socket_t*, 3> sockets) {
  const auto now = std::chrono::steady_clock::now();
  if (names_.size() != sockets.size() || now < next_look_) return;
  next_look_ = now + kLookAtDirectoryEvery;
  const auto directory = runtime_directory(asked_);
  std::string refusal = directory ? "" : directory.error().message();
  for (std::size_t i = 0; directory && i < sockets.size(); ++i) {
    Name& known = names_[i];
    if (known.path == *directory + '/' + known.name && file_id(known.path) == known.file) continue;
    try {
      if (auto bound = bind_in(*directory, known.name, *sockets[i])) {
        remove_name(known.path, known.file);
        log(LogLevel::warn, "control.names", known.path + " was gone: now at " + bound->path);
        known = *std::move(bound);
      } else {
        refusal = bound.error().message();
      }
    } catch (const zmq::error_t& error) {
      refusal = "zmq_bind in " + *directory + ": " + error.what();
    }
  }
  if (!refusal.empty() && refusal != refusal_)
    log(LogLevel::error, "control.names", "workers do not find this controller: " + refusal);
  refusal_ = std::move(refusal);
}

void IpcNames::remove() {
  for (const Name& known : names_) remove_name(known.path, known.file);
  names_.clear();
}

}  // namespace tendon::v0::detail
