// SPDX-License-Identifier: Apache-2.0
#include "control/worker_pipe.hpp"

#include <utility>

namespace tendon::v0::detail {

std::size_t WorkerPipe::unsent() {
  while (!sending_.empty() && sending_.front().done()) sending_.pop_front();
  return sending_.size();
}

void WorkerPipe::post(const v1::Word& word) {
  if (unsent() >= kMaxUnsentWords) {
    pipe_.cancel(Error{ErrorCode::resource_exhausted, "control.pipe",
                       std::to_string(kMaxUnsentWords) + " words wait for this peer to read them"});
    return;
  }
  const auto text = std::make_shared<std::string>(word.SerializeAsString());
  Storage bytes(text, reinterpret_cast<std::byte*>(text->data()), text->size(), Access::read_write);
  sending_.push_back(pipe_.send_async(std::move(bytes)));
}

void WorkerPipe::send(const v1::Word& word) {
  const Lock lock(mutex_);
  post(word);
}

void WorkerPipe::send_if_idle(const v1::Word& word) {
  const Lock lock(mutex_);
  if (unsent() == 0) post(word);
}

void WorkerPipe::send(const v1::Word& word, std::shared_ptr<const KeptBody> tensors) {
  const Lock lock(mutex_);
  post(word);
  sending_.push_back(send_kept_async(pipe_, std::move(tensors)));
}

void WorkerPipe::end_when_sent(const Error& reason) {
  const Lock lock(mutex_);
  if (unsent() == 0) return pipe_.cancel(reason);
  sending_.back().on_done(
      [self = shared_from_this(), reason](const Result<void>&) { self->pipe_.cancel(reason); });
}

void WorkerPipe::listen() {
  Completion<Message> next = pipe_.recv_message_async();
  // The pipe lives while it is listened to: its listener ends it.
  next.on_done(
      [self = shared_from_this()](Result<Message> message) { self->arrived(std::move(message)); });
  const Lock lock(mutex_);
  receiving_.emplace(std::move(next));
}

void WorkerPipe::arrived(Result<Message> message) {
  const std::shared_ptr<PipeListener> listener = listener_.lock();
  if (listener == nullptr) return;
  if (!message.has_value()) return listener->on_end(shared_from_this(), message.error());
  if (message->tensors) {
    listener->on_tensors(shared_from_this(), *std::move(message->tensors));
    return listen();
  }
  v1::Word word;
  const Storage& bytes = message->bytes;
  if (bytes.size_bytes() > kMaxStepPayloadBytes * 2 ||
      !word.ParseFromArray(bytes.data(), static_cast<int>(bytes.size_bytes()))) {
    const Error why{ErrorCode::protocol_violation, "control.pipe",
                    std::to_string(bytes.size_bytes()) + " bytes from " + pipe_.peer().to_string() +
                        " are no word of a worker pipe"};
    pipe_.cancel(why);
    return listener->on_end(shared_from_this(), why);
  }
  listener->on_word(shared_from_this(), std::move(word));
  listen();
}

}  // namespace tendon::v0::detail
