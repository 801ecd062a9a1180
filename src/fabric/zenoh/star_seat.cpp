// SPDX-License-Identifier: Apache-2.0
#include "fabric/zenoh/star_seat.hpp"

#include <utility>

#include "session/socket_names.hpp"

namespace tendon::v0::detail {

Result<std::shared_ptr<StarSeat>> StarSeat::take(const std::string& directory, std::string name) {
  auto seat = std::make_shared<StarSeat>(std::move(name));
  TENDON_CHECK(seat->serve_in(directory));
  return seat;
}

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

// The old one is dropped first: a process that serves twice would wait for its own lock.
Result<void> StarSeat::serve_in(const std::string& directory) {
  leave();
  TENDON_TRY(server, StarServer::start(StarPlaces::at(path_in(directory))));
  std::shared_ptr<ZenohPort> client;
  {
    const Lock lock(mutex_);
    server_ = server;
    client = client_.lock();
  }
  if (client != nullptr) server->look_at(*client);
  return {};
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
