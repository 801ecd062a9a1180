// SPDX-License-Identifier: Apache-2.0
#include "control/relay/worker_pipe.hpp"

#include <utility>

#include "control/relay/word.hpp"

namespace tendon::v0::detail {

namespace {

// The other direction reports these by itself.
bool is_end_of_pipe(ErrorCode code) {
  return code == ErrorCode::cancelled || code == ErrorCode::pipe_closed ||
         code == ErrorCode::end_of_stream || code == ErrorCode::peer_lost ||
         code == ErrorCode::unreachable || code == ErrorCode::context_closed ||
         code == ErrorCode::forked;
}

}  // namespace

std::size_t WorkerPipe::unsent() {
  while (!sending_.empty() && sending_.front().completion.done()) {
    Sending gone = std::move(sending_.front());
    sending_.pop_front();
    unsent_bytes_ -= gone.size_bytes;
    // tensors_went() has the result of tensors.
    if (gone.what == What::tensors) continue;
    const auto sent = gone.completion.wait(Deadline::now());
    if (!sent && sent.error().code != ErrorCode::already_taken) fail(sent.error());
  }
  return sending_.size();
}

void WorkerPipe::fail(const Error& why) {
  if (failure_ || is_end_of_pipe(why.code)) return;
  failure_ = why;
  pipe_.cancel(why);
}

bool WorkerPipe::has_room(std::uint64_t size_bytes) {
  return unsent() == 0 || size_bytes <= kMaxUnsentWordBytes - unsent_bytes_;
}

void WorkerPipe::post(const v1::Word& word) {
  const auto text = std::make_shared<std::string>(word.SerializeAsString());
  if (unsent() >= kMaxUnsentWords || !has_room(text->size())) {
    return fail({ErrorCode::resource_exhausted, "control.pipe",
                 std::to_string(sending_.size()) + " words of " + std::to_string(unsent_bytes_) +
                     " bytes wait for this peer to read them; at most " +
                     std::to_string(kMaxUnsentWords) + " and " +
                     std::to_string(kMaxUnsentWordBytes) + " bytes are kept"});
  }
  Storage bytes(text, reinterpret_cast<std::byte*>(text->data()), text->size(), Access::read_write);
  unsent_bytes_ += text->size();
  sending_.push_back({What::word, pipe_.send_async(std::move(bytes)), text->size()});
}

void WorkerPipe::send(const v1::Word& word) {
  const Lock lock(mutex_);
  post(word);
}

void WorkerPipe::send_if_idle(const v1::Word& word) {
  const Lock lock(mutex_);
  if (unsent() == 0) post(word);
}

bool WorkerPipe::send_if_room(const v1::Word& word) {
  const Lock lock(mutex_);
  if (unsent() >= kMaxUnsentWords / 2 || !has_room(word.ByteSizeLong())) return false;
  post(word);
  return true;
}

void WorkerPipe::send(const v1::Word& word, std::shared_ptr<const KeptBody> tensors) {
  const Lock lock(mutex_);
  post(word);
  Completion<void> sending = send_kept_async(pipe_, std::move(tensors));
  sending.on_done([weak = weak_from_this()](const Result<void>& result) {
    if (const auto self = weak.lock()) self->tensors_went(result);
  });
  sending_.push_back({What::tensors, std::move(sending)});
}

void WorkerPipe::tensors_went(const Result<void>& result) {
  std::optional<Error> end;
  {
    const Lock lock(mutex_);
    if (!result) return fail(result.error());
    if (end_with_ && unsent() == 0) end = end_with_;
  }
  if (end) pipe_.cancel(*end);
}

void WorkerPipe::end_when_sent(const Error& reason) {
  const Lock lock(mutex_);
  if (unsent() == 0) return pipe_.cancel(reason);
  end_with_ = reason;
  if (sending_.back().what == What::tensors) return;
  sending_.back().completion.on_done(
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
  if (!message.has_value()) {
    Error why = message.error();
    {
      const Lock lock(mutex_);
      if (failure_) why = *failure_;
    }
    return listener->on_end(shared_from_this(), why);
  }
  if (message->tensors) {
    listener->on_tensors(shared_from_this(), *std::move(message->tensors));
    return listen();
  }
  Result<v1::Word> word = read_word(message->bytes.bytes());
  if (!word.has_value()) {
    const Error why{word.error().code, word.error().where,
                    "from " + pipe_.peer().to_string() + ": " + word.error().detail};
    pipe_.cancel(why);
    return listener->on_end(shared_from_this(), why);
  }
  listener->on_word(shared_from_this(), *std::move(word));
  listen();
}

std::uint64_t send_again(const FlowSender& sender, const v1::ResendRequest& request,
                         const v1::Word& word, WorkerPipe& pipe) {
  if (request.first() < sender.first_kept()) {
    v1::Word reply = word;
    reply.mutable_not_retained()->set_flow(request.flow());
    reply.mutable_not_retained()->set_first(sender.first_kept());
    pipe.send(reply);
    return 0;
  }
  const std::uint64_t last = request.last() == 0 ? sender.sent() : request.last();
  std::uint64_t count = 0;
  for (const FlowSender::Kept& message : sender.between(request.first(), last)) {
    v1::Word reply = word;
    if (!reply.mutable_resent()->ParseFromString(*message)) continue;
    if (!pipe.send_if_room(reply)) break;
    ++count;
  }
  return count;
}

}  // namespace tendon::v0::detail
