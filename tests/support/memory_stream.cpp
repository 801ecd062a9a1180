// SPDX-License-Identifier: Apache-2.0
#include "support/memory_stream.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>

namespace tendon::test {

using detail::StreamIo;

Bytes ByteQueue::front(std::size_t most) const {
  return Bytes(bytes_).subspan(begin_, std::min(most, size()));
}

void ByteQueue::drop(std::size_t count) {
  begin_ += count;
  if (begin_ < bytes_.size() / 2) return;
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
  begin_ = 0;
}

// The socket of one end that epoll watches. It has a byte or a full buffer when the stream says so.
class MemoryStream::Signal {
 public:
  Signal() {
    std::array<int, 2> fds{-1, -1};
    (void)socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data());
    watched_ = detail::OwnedFd(fds[0]);
    hand_ = detail::OwnedFd(fds[1]);
    const int smallest = 1;
    (void)setsockopt(watched_.get(), SOL_SOCKET, SO_SNDBUF, &smallest, sizeof smallest);
  }
  [[nodiscard]] int fd() const { return watched_.get(); }
  void show_input(bool there_is) {
    std::lock_guard lock(mutex_);
    if (std::exchange(input_, there_is) == there_is) return;
    char byte = 0;
    if (there_is)
      (void)send(hand_.get(), &byte, 1, MSG_NOSIGNAL);
    else
      (void)recv(watched_.get(), &byte, 1, 0);
  }
  void show_room(bool there_is) {
    std::lock_guard lock(mutex_);
    if (std::exchange(room_, there_is) == there_is) return;
    std::array<char, 4096> bytes{};
    if (there_is)
      while (recv(hand_.get(), bytes.data(), bytes.size(), 0) > 0) {
      }
    else
      while (send(watched_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
      }
  }
  void show_end() { (void)shutdown(hand_.get(), SHUT_WR); }
  void show_break() { (void)shutdown(hand_.get(), SHUT_RDWR); }

 private:
  std::mutex mutex_;
  detail::OwnedFd watched_;
  detail::OwnedFd hand_;
  bool input_ = false;
  bool room_ = true;
};

// One direction.
struct MemoryStream::Wire {
  std::shared_ptr<std::mutex> line;  // of both directions
  Wire* other = nullptr;
  ByteQueue bytes;
  std::size_t room_bytes = 0;
  bool ended = false;  // in order, by the writer
  bool has_reader = true;
  bool broken = false;
  std::optional<std::uint64_t> breaks_after;
  std::shared_ptr<Signal> reader;
  std::shared_ptr<Signal> writer;

  [[nodiscard]] std::size_t room() const { return room_bytes - std::min(room_bytes, bytes.size()); }
  void put(Bytes more) {
    if (breaks_after) {
      more = more.first(std::min<std::uint64_t>(more.size(), *breaks_after));
      *breaks_after -= more.size();
      if (*breaks_after == 0) break_down();
    }
    bytes.put(more);
    show();
  }
  void break_down() {
    broken = other->broken = true;
    reader->show_break();
    writer->show_break();
  }
  void show() const {
    reader->show_input(bytes.size() != 0 || ended || broken);
    writer->show_room(room() != 0 || broken || !has_reader);
  }
};

namespace {

std::size_t total(std::span<const iovec> pieces) {
  std::size_t size = 0;
  for (const iovec& piece : pieces) size += piece.iov_len;
  return size;
}

std::vector<std::byte> gathered(std::span<const iovec> pieces, std::size_t most) {
  std::vector<std::byte> bytes;
  for (const iovec& piece : pieces) {
    const auto* begin = static_cast<const std::byte*>(piece.iov_base);
    bytes.insert(bytes.end(), begin, begin + std::min(piece.iov_len, most - bytes.size()));
  }
  return bytes;
}

std::size_t scatter(Bytes bytes, std::span<const iovec> pieces) {
  std::size_t done = 0;
  for (const iovec& piece : pieces) {
    const std::size_t size = std::min(piece.iov_len, bytes.size() - done);
    if (size != 0) std::memcpy(piece.iov_base, bytes.data() + done, size);
    done += size;
  }
  return done;
}

}  // namespace

MemoryStream::Pair MemoryStream::make_pair(const Manner& manner) {
  const auto a = std::make_shared<Signal>();
  const auto b = std::make_shared<Signal>();
  const auto wire = [&](const std::shared_ptr<Signal>& from, const std::shared_ptr<Signal>& to) {
    auto made = std::make_shared<Wire>();
    made->room_bytes = manner.room_bytes;
    made->writer = from;
    made->reader = to;
    return made;
  };
  const auto forth = wire(a, b);
  const auto back = wire(b, a);
  forth->line = back->line = std::make_shared<std::mutex>();
  forth->other = back.get();
  back->other = forth.get();
  return {std::unique_ptr<MemoryStream>(new MemoryStream(back, forth, manner)),
          std::unique_ptr<MemoryStream>(new MemoryStream(forth, back, manner))};
}

MemoryStream::MemoryStream(std::shared_ptr<Wire> in, std::shared_ptr<Wire> out,
                           const Manner& manner)
    : in_(std::move(in)), out_(std::move(out)), manner_(manner) {}

// Acts as the socket of a process that dies: bytes that stayed inside are lost, bytes under way
// arrive.
MemoryStream::~MemoryStream() {
  {
    std::lock_guard lock(*out_->line);
    if (!std::exchange(out_->ended, true)) out_->reader->show_end();
    out_->show();
  }
  std::lock_guard lock(*in_->line);
  in_->has_reader = false;
  in_->show();
}

int MemoryStream::fd() const noexcept { return in_->reader->fd(); }

bool MemoryStream::stalls(std::size_t& calls) const {
  return manner_.stalls_every != 0 && ++calls % manner_.stalls_every == 0;
}

StreamIo MemoryStream::read(std::span<const iovec> pieces) noexcept {
  if (received_.size() == 0) {
    std::lock_guard lock(*in_->line);
    if (in_->bytes.size() == 0) {
      if (in_->broken) return StreamIo::lost(ECONNRESET);
      return in_->ended ? StreamIo::ended() : StreamIo();
    }
    if (stalls(reads_)) return {};
    const std::size_t wanted = std::min(manner_.most_read, total(pieces));
    const Bytes some = in_->bytes.front(manner_.record_bytes != 0 ? manner_.record_bytes : wanted);
    received_.put(some);
    in_->bytes.drop(some.size());
    in_->show();
  }
  const std::size_t read = scatter(received_.front(manner_.most_read), pieces);
  received_.drop(read);
  return StreamIo::moved(read, received_.size());
}

StreamIo MemoryStream::write(std::span<const iovec> pieces) noexcept {
  std::lock_guard lock(*out_->line);
  if (out_->broken || !out_->has_reader || out_->ended) return StreamIo::lost(EPIPE);
  if (stalls(writes_)) return {};
  std::size_t most = std::min(manner_.most_written, total(pieces));
  if (manner_.record_bytes == 0) {
    most = std::min(most, out_->room());
    if (most == 0) return {};
  } else {
    push_out();
    most = taken_.size() == 0 ? std::min(most, manner_.record_bytes) : 0;
  }
  taken_.put(gathered(pieces, most));
  push_out();
  return StreamIo::moved(most, taken_.size());
}

// Moves as many bytes to the wire as it has room for.
void MemoryStream::push_out() {
  const Bytes some = taken_.front(out_->room());
  out_->put(some);
  taken_.drop(some.size());
}

void MemoryStream::end_output() noexcept {
  std::lock_guard lock(*out_->line);
  out_->put(taken_.front(taken_.size()));
  taken_.drop(taken_.size());
  if (!std::exchange(out_->ended, true)) out_->reader->show_end();
  out_->show();
}

void MemoryStream::break_after(std::uint64_t bytes) {
  std::lock_guard lock(*out_->line);
  out_->breaks_after = bytes;
  if (bytes == 0) out_->break_down();
  out_->show();
}

}  // namespace tendon::test
