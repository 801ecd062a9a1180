// SPDX-License-Identifier: Apache-2.0
//
// The plain socket program that the tcp path is compared with: two processes, TCP over loopback,
// TCP_NODELAY, default socket buffers, without framing or copies of its own.
//
//   blocking, spinning   ping-pong of n bytes; one way is half a round. `blocking` sleeps in recv,
//                        `spinning` polls a non-blocking socket.
//   streams_S            moves one buffer of n bytes over S connections, a thread pair each, every
//                        pair its contiguous share, into a preallocated touched buffer. The time
//                        runs from the first byte until the last receiver's one-byte answer.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <barrier>

#include "peer.hpp"

namespace {

enum class Wait { block, spin };

constexpr std::size_t kMaxStreams = 16;

/// Sends all of `bytes`, in pieces as large as the kernel accepts.
void send_all(int socket, std::span<const std::byte> bytes, Wait wait) {
  const int flags = MSG_NOSIGNAL | (wait == Wait::spin ? MSG_DONTWAIT : 0);
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), flags);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno != EAGAIN && errno != EINTR) {
      peer::fail_errno("send");
    }
  }
}

// A recv of everything keeps the socket locked while it copies, and the sender's segments queue up
// behind it. With pieces of this size one stream was up to 1.5 times as fast on loopback.
constexpr std::size_t kReceivePieceBytes = std::size_t{128} << 10;

/// Receives until `bytes` is full. MSG_WAITALL spares a system call per arriving segment.
void receive_all(int socket, std::span<std::byte> bytes, Wait wait) {
  const int flags = wait == Wait::spin ? MSG_DONTWAIT : MSG_WAITALL;
  while (!bytes.empty()) {
    const ssize_t received =
        recv(socket, bytes.data(), std::min(bytes.size(), kReceivePieceBytes), flags);
    if (received > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(received));
    } else if (received == 0) {
      peer::fail("recv: the other process closed its socket");
    } else if (errno != EAGAIN && errno != EINTR) {
      peer::fail_errno("recv");
    }
  }
}

void set_no_delay(int socket) {
  const int on = 1;
  if (setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
    peer::fail_errno("setsockopt(TCP_NODELAY)");
  }
}

struct ListeningSocket {
  int fd;
  sockaddr_in address;
};

ListeningSocket listen_on_loopback() {
  ListeningSocket listener{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), {}};
  if (listener.fd < 0) peer::fail_errno("socket");
  listener.address.sin_family = AF_INET;
  listener.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* address = reinterpret_cast<sockaddr*>(&listener.address);
  socklen_t length = sizeof listener.address;
  if (bind(listener.fd, address, length) != 0) peer::fail_errno("bind");
  if (listen(listener.fd, kMaxStreams) != 0) peer::fail_errno("listen");
  if (getsockname(listener.fd, address, &length) != 0) peer::fail_errno("getsockname");
  return listener;
}

std::vector<int> connect_streams(const ListeningSocket& listener, std::size_t streams) {
  std::vector<int> sockets;
  for (std::size_t stream = 0; stream < streams; ++stream) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) peer::fail_errno("socket");
    const auto* address = reinterpret_cast<const sockaddr*>(&listener.address);
    if (connect(fd, address, sizeof listener.address) != 0) peer::fail_errno("connect");
    set_no_delay(fd);
    sockets.push_back(fd);
  }
  return sockets;
}

std::vector<int> accept_streams(const ListeningSocket& listener, std::size_t streams) {
  std::vector<int> sockets;
  for (std::size_t stream = 0; stream < streams; ++stream) {
    const int fd = accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) peer::fail_errno("accept");
    set_no_delay(fd);
    sockets.push_back(fd);
  }
  return sockets;
}

void close_all(std::span<const int> sockets) {
  for (const int fd : sockets) close(fd);
}

peer::Result measure_ping_pong(const peer::Options& options, std::size_t size_bytes, Wait wait) {
  const std::size_t warm_up = options.warm_up_for(size_bytes);
  const std::size_t rounds = warm_up + options.iterations_for(size_bytes);
  const ListeningSocket listener = listen_on_loopback();

  const pid_t child = peer::spawn([&] {
    const std::vector<int> sockets = connect_streams(listener, 1);
    peer::TouchedBuffer buffer(size_bytes);
    for (std::size_t round = 0; round < rounds; ++round) {
      receive_all(sockets[0], buffer.span(), wait);
      send_all(sockets[0], buffer.span(), wait);
    }
    close_all(sockets);
  });

  const std::vector<int> sockets = accept_streams(listener, 1);
  peer::TouchedBuffer buffer(size_bytes);
  auto rounds_us = peer::time_rounds(warm_up, rounds - warm_up, [&] {
    send_all(sockets[0], buffer.span(), wait);
    receive_all(sockets[0], buffer.span(), wait);
  });
  close_all(sockets);
  close(listener.fd);
  peer::reap(child);
  return peer::summarize_ping_pong("socket", wait == Wait::spin ? "spinning" : "blocking",
                                   size_bytes, std::move(rounds_us));
}

/// The contiguous part of `whole` that belongs to `stream`; the parts differ by at most one byte.
std::span<std::byte> share_of(std::span<std::byte> whole, std::size_t stream, std::size_t streams) {
  const std::size_t begin = whole.size() * stream / streams;
  const std::size_t end = whole.size() * (stream + 1) / streams;
  return whole.subspan(begin, end - begin);
}

void receive_moves(const ListeningSocket& listener, std::size_t size_bytes, std::size_t streams,
                   std::size_t rounds) {
  const std::vector<int> sockets = connect_streams(listener, streams);
  peer::TouchedBuffer destination(size_bytes);
  const auto receive_stream = [&](std::size_t stream) {
    const std::span<std::byte> share = share_of(destination.span(), stream, streams);
    const std::byte answer{1};
    for (std::size_t round = 0; round < rounds; ++round) {
      receive_all(sockets[stream], share, Wait::block);
      send_all(sockets[stream], {&answer, 1}, Wait::block);
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t stream = 1; stream < streams; ++stream) {
    threads.emplace_back(receive_stream, stream);
  }
  receive_stream(0);
  threads.clear();
  close_all(sockets);
}

peer::Result measure_move(const peer::Options& options, std::size_t size_bytes,
                          std::size_t streams) {
  const std::size_t warm_up = options.warm_up_for(size_bytes);
  const std::size_t rounds = warm_up + options.iterations_for(size_bytes);
  const ListeningSocket listener = listen_on_loopback();
  const pid_t child = peer::spawn([&] { receive_moves(listener, size_bytes, streams, rounds); });

  const std::vector<int> sockets = accept_streams(listener, streams);
  peer::TouchedBuffer source(size_bytes);
  std::barrier<> line(static_cast<std::ptrdiff_t>(streams));
  const auto send_stream = [&](std::size_t stream) {
    std::byte answer{0};
    send_all(sockets[stream], share_of(source.span(), stream, streams), Wait::block);
    receive_all(sockets[stream], {&answer, 1}, Wait::block);
  };
  std::vector<std::jthread> threads;
  for (std::size_t stream = 1; stream < streams; ++stream) {
    threads.emplace_back([&, stream] {
      for (std::size_t round = 0; round < rounds; ++round) {
        line.arrive_and_wait();
        send_stream(stream);
        line.arrive_and_wait();
      }
    });
  }

  auto samples_us = peer::time_rounds(warm_up, rounds - warm_up, [&] {
    if (streams > 1) line.arrive_and_wait();
    send_stream(0);
    if (streams > 1) line.arrive_and_wait();
  });
  threads.clear();
  close_all(sockets);
  close(listener.fd);
  peer::reap(child);
  return peer::summarize("socket", "streams_" + std::to_string(streams), size_bytes, samples_us);
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = peer::parse_options(
      argc, argv, {.begin_bytes = 1 << 10, .end_bytes = std::size_t{64} << 20, .factor = 4},
      {"--mode", "--streams"});
  const std::string mode = options.extra_or("--mode", "blocking");
  const std::size_t streams = peer::parse_size("--streams", options.extra_or("--streams", "1"));
  if (streams > kMaxStreams) {
    peer::fail("--streams: " + std::to_string(streams) + " is not in 1.." +
               std::to_string(kMaxStreams));
  }

  std::vector<peer::Result> results;
  for (const std::size_t size_bytes : options.sizes_bytes()) {
    if (mode == "blocking") {
      results.push_back(measure_ping_pong(options, size_bytes, Wait::block));
    } else if (mode == "spinning") {
      results.push_back(measure_ping_pong(options, size_bytes, Wait::spin));
    } else if (mode == "move") {
      results.push_back(measure_move(options, size_bytes, streams));
    } else {
      peer::fail("--mode: '" + mode + "' is not blocking, spinning or move");
    }
  }
  peer::print_json("socket_pair", results);
  return 0;
}
