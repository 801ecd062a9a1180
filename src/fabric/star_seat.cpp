// SPDX-License-Identifier: Apache-2.0
#include "fabric/star_seat.hpp"

#include <utility>

#include "session/socket_names.hpp"

namespace tendon::v0::detail {

StarSeat::StarSeat(const std::string& directory, std::string name)
    : name_(std::move(name)),
      server_(std::make_shared<StarServer>(StarPlaces::at(path_in(directory)))) {}

std::shared_ptr<StarServer> StarSeat::server() const {
  const Lock lock(mutex_);
  return server_;
}

void StarSeat::look_at(const ZenohPort& client) {
  if (const auto server = this->server()) server->look_at(client);
}

void StarSeat::watch_by(const std::shared_ptr<ZenohPort>& client) {
  const Lock lock(mutex_);
  client_ = client;
}

// The old one goes first: a process that serves twice would wait for its own lock.
void StarSeat::serve_in(const std::string& directory) {
  leave();
  const auto server = std::make_shared<StarServer>(StarPlaces::at(path_in(directory)));
  std::shared_ptr<ZenohPort> client;
  {
    const Lock lock(mutex_);
    server_ = server;
    client = client_.lock();
  }
  if (client != nullptr) server->look_at(*client);
}

void StarSeat::leave() {
  std::shared_ptr<StarServer> old;
  const Lock lock(mutex_);
  old.swap(server_);
}

bool StarSeat::is_served_in(const std::string& directory) const {
  return file_id(path_in(directory)).has_value();
}

}  // namespace tendon::v0::detail
