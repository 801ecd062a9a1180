// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <list>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "support/raw_socket.hpp"

namespace tendon::test {

/// Counts the TLS records that have begun in a stream of bytes.
class RecordCount {
 public:
  void take(std::string_view bytes) {
    for (const char byte : bytes) {
      if (body_bytes_ != 0) {
        --body_bytes_;
        continue;
      }
      // The header is the type, the version and two bytes of length.
      const auto octet = static_cast<unsigned char>(byte);
      if (header_bytes_ == 3) length_ = octet * 256u;
      if (++header_bytes_ < 5) continue;
      body_bytes_ = length_ + octet;
      header_bytes_ = 0;
      ++count_;
    }
  }
  [[nodiscard]] std::size_t count() const { return count_; }

 private:
  std::size_t count_ = 0;
  std::size_t header_bytes_ = 0;  // taken of the next header
  std::size_t length_ = 0;
  std::size_t body_bytes_ = 0;  // missing of the record
};

/// A foreign port that passes everything on to a listener, and passes the answers back. It may keep
/// the answers for a while. It moves no more at once than sockets have room for.
class Relay {
 public:
  /// `holds_after`: keeps the listener's answers on the first connection once the connecting end
  /// has sent so many TLS records. 0: keeps nothing.
  explicit Relay(std::string to, std::size_t holds_after = 0)
      : to_(std::move(to)), holds_after_(holds_after), thread_([this] { run(); }) {}
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  ~Relay() {
    ends_ = true;
    wake();
    thread_.join();
  }
  [[nodiscard]] const std::string& address() const { return listener_.address(); }
  [[nodiscard]] std::size_t held_bytes() const { return held_bytes_; }
  /// Sends what it has kept, and keeps nothing from now on.
  void release() {
    releases_ = true;
    wake();
  }

 private:
  struct Connection {
    detail::OwnedFd client;
    detail::OwnedFd server;
    bool may_hold = false;
    RecordCount records{};  // from the client
    std::string held{};
    bool client_ended = false;
    bool server_ended = false;
  };

  void wake() const { EXPECT_EQ(eventfd_write(wake_.get(), 1), 0); }

  /// Returns an empty text at the end.
  static std::string read_some(int fd) {
    std::string bytes(4096, '\0');
    const ssize_t got = TEMP_FAILURE_RETRY(recv(fd, bytes.data(), bytes.size(), 0));
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return bytes;
  }
  void hear_client(Connection& connection) const {
    const std::string said = read_some(connection.client.get());
    connection.records.take(said);
    send_all(connection.server.get(), said);
    if (!said.empty()) return;
    connection.client_ended = true;
    shutdown(connection.server.get(), SHUT_WR);
  }
  void hear_server(Connection& connection) {
    const std::string said = read_some(connection.server.get());
    const bool holds =
        connection.may_hold && !releases_ && connection.records.count() >= holds_after_;
    if (holds) {
      connection.held += said;
      held_bytes_ += said.size();
    } else {
      send_all(connection.client.get(), std::exchange(connection.held, {}) + said);
    }
    if (!said.empty()) return;
    connection.server_ended = true;
    shutdown(connection.client.get(), SHUT_WR);
  }
  void accept() {
    connections_.push_back({.client = listener_.accept(),
                            .server = connect_raw(to_),
                            .may_hold = holds_after_ != 0 && connections_.empty()});
  }

  void run() {
    while (!ends_) {
      std::vector<pollfd> waited{{wake_.get(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
      for (const Connection& connection : connections_) {
        waited.push_back({connection.client_ended ? -1 : connection.client.get(), POLLIN, 0});
        waited.push_back({connection.server_ended ? -1 : connection.server.get(), POLLIN, 0});
      }
      if (poll(waited.data(), waited.size(), -1) < 0) continue;
      std::size_t at = 2;
      for (Connection& connection : connections_) {
        if (waited[at++].revents != 0) hear_client(connection);
        if (waited[at++].revents != 0) hear_server(connection);
      }
      if (waited[1].revents != 0) accept();
      if (waited[0].revents == 0) continue;
      eventfd_t ignored = 0;
      (void)eventfd_read(wake_.get(), &ignored);
      if (!releases_) continue;
      for (Connection& connection : connections_)
        send_all(connection.client.get(), std::exchange(connection.held, {}));
    }
  }

  const std::string to_;
  const std::size_t holds_after_;
  const RawListener listener_;
  const detail::OwnedFd wake_{eventfd(0, EFD_CLOEXEC)};
  std::list<Connection> connections_;  // used by the thread only
  std::atomic<bool> ends_{false};
  std::atomic<bool> releases_{false};
  std::atomic<std::size_t> held_bytes_{0};
  std::thread thread_;  // last: it uses the others
};

}  // namespace tendon::test
