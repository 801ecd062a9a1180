// SPDX-License-Identifier: Apache-2.0
#include "controller/front.hpp"

#include <chrono>
#include <utility>

namespace engine {
namespace {

using namespace std::chrono_literals;

// The interval at which a thread checks whether it must end.
constexpr auto kLook = 100ms;
// The time to send waiting messages when the controller ends, also to a front that reads nothing.
constexpr auto kPatience = 10s;

}  // namespace

tendon::Result<std::unique_ptr<Front>> Front::listen(tendon::Context& context,
                                                     std::string_view address,
                                                     Inbox<FrontEvent>& inbox) {
  TENDON_TRY(listener, tendon::Listener::bind(context, address));
  return std::make_unique<Front>(std::move(listener), inbox);
}

Front::Front(tendon::Listener listener, Inbox<FrontEvent>& inbox)
    : listener_(std::move(listener)),
      inbox_(inbox),
      sender_([this] { send_all(); }),
      receiver_([this](const std::stop_token& stop) { receive_all(stop); }) {}

Front::~Front() {
  {
    const std::lock_guard lock(mutex_);
    life_ = Life::ends;
    changed_.notify_all();
  }
  sender_.join();
}

bool Front::is_there() const {
  const std::lock_guard lock(mutex_);
  return pipe_ != nullptr;
}

void Front::send(std::string message) {
  const std::lock_guard lock(mutex_);
  if (pipe_ == nullptr) return;
  unsent_bytes_ += message.size();
  if (unsent_bytes_ > kMaxUnsentBytes) {
    pipe_->cancel(
        {tendon::ErrorCode::limit_exceeded, "engine.front",
         "the front does not read: " + std::to_string(unsent_bytes_) + " bytes wait for it"});
    return;
  }
  unsent_.push_back(std::move(message));
  changed_.notify_all();
}

void Front::send_all() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return life_ == Life::ends || !unsent_.empty(); });
    if (unsent_.empty() || pipe_ == nullptr) {
      if (life_ == Life::ends) return;
      unsent_.clear();
      continue;
    }
    const std::shared_ptr<tendon::Pipe> pipe = pipe_;
    const std::string message = std::move(unsent_.front());
    unsent_.pop_front();
    unsent_bytes_ -= message.size();
    lock.unlock();
    const auto sent = pipe->send(tendon::as_bytes(message), {}, kPatience);
    if (!sent.has_value()) pipe->cancel(sent.error());
    lock.lock();
    if (!sent.has_value() && life_ == Life::ends) return;
  }
}

void Front::receive_all(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    auto accepted = listener_.accept(kLook);
    if (!accepted.has_value()) {
      if (accepted.error().code == tendon::ErrorCode::timeout) continue;
      return;
    }
    const auto pipe = std::make_shared<tendon::Pipe>(*std::move(accepted));
    {
      const std::lock_guard lock(mutex_);
      pipe_ = pipe;
    }
    receive_from(*pipe, stop);
    {
      const std::lock_guard lock(mutex_);
      pipe_ = nullptr;
      unsent_.clear();
      unsent_bytes_ = 0;
    }
    inbox_.leave(FrontGone{});
  }
}

void Front::receive_from(tendon::Pipe& pipe, const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    auto message = pipe.recv_message(kLook);
    if (message.has_value()) {
      if (message->tensors) {
        inbox_.leave(FrontMessage(Malformed{std::nullopt, "tensors; legal is a JSON object"}));
      } else {
        inbox_.leave(parse_front_message(message->bytes.bytes()));
      }
    } else if (message.error().code != tendon::ErrorCode::timeout) {
      return;
    }
  }
}

}  // namespace engine
