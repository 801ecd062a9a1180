// SPDX-License-Identifier: Apache-2.0
#include "cli/secure_ways.hpp"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <utility>
#include <vector>

#include "cli/benchmark.hpp"
#include "cli/stream_socket.hpp"

namespace tendon::cli {
namespace {

constexpr std::chrono::seconds kConnectLimit{30};

bool is_pipe(WayKind kind) { return kind == WayKind::plaintext || kind == WayKind::records; }

Result<Security> security_of(const WayOptions& options) {
  if (options.kind == WayKind::plaintext) return Security{Profile::plaintext};
  return Security::load(options.files);
}

Result<TensorDict> batch_of(Storage storage, std::uint64_t size_bytes) {
  TENDON_TRY(tensor, Tensor::view(std::move(storage), 0, DType::u8,
                                  Shape{static_cast<std::int64_t>(size_bytes)}));
  TensorDict batch;
  TENDON_CHECK(batch.try_set("x", std::move(tensor)));
  return batch;
}

class PipeWay final : public Way {
 public:
  PipeWay(Context context, Pipe pipe, const WayOptions& options)
      : context_(std::move(context)),
        pipe_(std::move(pipe)),
        input_(options.input),
        profile_(options.kind == WayKind::records ? Profile::secure : Profile::plaintext) {}

  void begin() override { deadline_ = row_deadline(); }
  Result<void> send(std::uint64_t size_bytes) override {
    if (size_bytes < kTensorBytes)
      return pipe_.send(input_.bytes().first(size_bytes), {}, deadline_);
    TENDON_CHECK(prepare(size_bytes));
    return pipe_.send(sent_, deadline_);
  }
  Result<void> receive(std::uint64_t size_bytes) override {
    if (size_bytes >= kTensorBytes) {
      TENDON_CHECK(prepare(size_bytes));
      received_ = place_.bytes().first(size_bytes);
      return pipe_.recv_into(taken_, deadline_);
    }
    auto message = pipe_.recv_message(deadline_);
    if (!message) return std::move(message).error();
    message_ = *std::move(message);
    received_ = message_.bytes.bytes();
    return {};
  }
  Bytes received() const override { return received_; }
  std::string protection() const override { return std::string(to_string(profile_)); }

 private:
  [[nodiscard]] Result<void> prepare(std::uint64_t size_bytes) {
    if (size_bytes == prepared_bytes_) return {};
    TENDON_TRY(sent, batch_of(input_, size_bytes));
    TENDON_TRY(place, Storage::allocate(size_bytes));
    TENDON_TRY(taken, batch_of(place, size_bytes));
    sent_ = std::move(sent);
    place_ = std::move(place);
    taken_ = std::move(taken);
    prepared_bytes_ = size_bytes;
    return {};
  }

  Context context_;
  Pipe pipe_;
  Storage input_;
  Profile profile_;
  Deadline deadline_ = row_deadline();
  std::uint64_t prepared_bytes_ = 0;
  TensorDict sent_;
  Storage place_;
  TensorDict taken_;
  Message message_;
  Bytes received_;
};

class SocketWay final : public Way {
 public:
  SocketWay(StreamSocket socket, Storage input)
      : socket_(std::move(socket)), input_(std::move(input)), place_(input_.size_bytes()) {}

  void begin() override { deadline_ = row_deadline(); }
  Result<void> send(std::uint64_t size_bytes) override {
    return socket_.send(input_.bytes().first(size_bytes), deadline_);
  }
  Result<void> receive(std::uint64_t size_bytes) override {
    received_ = Bytes(place_).first(size_bytes);
    return socket_.receive(MutableBytes(place_).first(size_bytes), deadline_);
  }
  Bytes received() const override { return received_; }
  std::string protection() const override { return socket_.protection(); }

 private:
  StreamSocket socket_;
  Storage input_;
  std::vector<std::byte> place_;
  Deadline deadline_ = row_deadline();
  Bytes received_;
};

Result<std::unique_ptr<Way>> socket_way(const WayOptions& options, detail::OwnedFd connected,
                                        detail::secure::TlsHandshake::Role role) {
  const auto wait = options.policy == WaitPolicy::blocking ? SocketWait::sleep : SocketWait::spin;
  auto socket = options.kind == WayKind::socket
                    ? StreamSocket::bare(std::move(connected), wait)
                    : StreamSocket::tls(std::move(connected), role, options.files, wait);
  if (!socket) return std::move(socket).error();
  return std::make_unique<SocketWay>(*std::move(socket), options.input);
}

Result<Context> context_of(const WayOptions& options) {
  return Context::create({.name = fmt::format("bench {}", to_string(options.kind)),
                          .wait_policy = options.policy,
                          .transport = Transport::tcp});
}

}  // namespace

struct WayMaker::Place {
  std::optional<Context> context{};
  std::optional<Listener> listener{};
  SocketListener socket{};
};

Result<std::string> WayMaker::bind() {
  place_ = std::make_shared<Place>();
  if (!is_pipe(options_.kind)) {
    TENDON_TRY(listener, listen_on(options_.host));
    place_->socket = std::move(listener);
    return std::to_string(place_->socket.port);
  }
  TENDON_TRY(security, security_of(options_));
  TENDON_TRY(context, context_of(options_));
  place_->context = std::move(context);
  TENDON_TRY(listener, Listener::bind(*place_->context, options_.host + ":0",
                                      {.security = std::move(security)}));
  place_->listener = std::move(listener);
  return place_->listener->address();
}

Result<std::unique_ptr<Way>> WayMaker::accept() {
  if (!is_pipe(options_.kind)) {
    TENDON_TRY(connected, accept_one(place_->socket, kConnectLimit));
    return socket_way(options_, std::move(connected), detail::secure::TlsHandshake::Role::server);
  }
  TENDON_TRY(pipe, place_->listener->accept(kConnectLimit));
  return std::make_unique<PipeWay>(*std::move(place_->context), std::move(pipe), options_);
}

Result<std::unique_ptr<Way>> WayMaker::connect(const std::string& address) {
  if (!is_pipe(options_.kind)) {
    std::uint16_t port = 0;
    std::from_chars(address.data(), address.data() + address.size(), port);
    TENDON_TRY(connected, dial(options_.host, port));
    return socket_way(options_, std::move(connected), detail::secure::TlsHandshake::Role::client);
  }
  TENDON_TRY(security, security_of(options_));
  TENDON_TRY(context, context_of(options_));
  TENDON_TRY(pipe,
             Pipe::connect(context, address, kConnectLimit, {.security = std::move(security)}));
  return std::make_unique<PipeWay>(std::move(context), std::move(pipe), options_);
}

}  // namespace tendon::cli
