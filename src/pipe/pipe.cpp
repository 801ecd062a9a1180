// SPDX-License-Identifier: Apache-2.0
#include <tendon/pipe/pipe.hpp>

#include "core/left_to_parent.hpp"
#include "pipe/direct_fill.hpp"
#include "pipe/pipe_core.hpp"

namespace tendon::v0 {

Pipe::Pipe(std::shared_ptr<detail::PipeCore> core) : core_(std::move(core)) {}
Pipe::Pipe(Pipe&&) noexcept = default;

Pipe& Pipe::operator=(Pipe&& other) noexcept {
  if (this != &other) {
    const Pipe old(std::move(*this));
    core_ = std::move(other.core_);
  }
  return *this;
}

Pipe::~Pipe() {
  if (core_ == nullptr) return;
  if (core_->context()->forked())
    detail::leave_to_parent(core_);
  else
    core_->abandon();
}

Result<Pipe> Pipe::connect(Context& context, std::string_view address, Deadline deadline,
                           const ConnectOptions& options) {
  TENDON_TRY(core, detail::PipeCore::connect(detail::ContextCore::of(context), address, options,
                                             deadline));
  return Pipe(std::move(core));
}

Result<void> Pipe::send(const TensorDict& batch, Deadline deadline, const SendOptions& options) {
  return core_->sender().send(batch, options, deadline);
}
Result<void> Pipe::send(Loan&& loan, Deadline deadline, const SendOptions& options) {
  return core_->sender().send(std::move(loan), options, deadline);
}
Result<void> Pipe::send(Bytes bytes, const MessageOptions& options, Deadline deadline) {
  return core_->sender().send(bytes, options, deadline);
}
Completion<void> Pipe::send_async(TensorDict batch, const SendOptions& options) {
  return core_->send_async(std::move(batch), options);
}
Completion<void> Pipe::send_async(Loan&& loan, const SendOptions& options) {
  return core_->send_async(std::move(loan), options);
}
Completion<void> Pipe::send_async(Storage bytes, const MessageOptions& options) {
  return core_->send_async(std::move(bytes), options);
}
Result<Loan> Pipe::loan(const std::shared_ptr<const Schema>& schema, Deadline deadline) {
  return core_->sender().loan(schema, deadline);
}
Result<Loan> Pipe::loan(const std::shared_ptr<const Schema>& schema, const LoanOptions& options,
                        Deadline deadline) {
  return core_->sender().loan(schema, options, deadline);
}

Result<TensorDict> Pipe::recv(const RecvOptions& options, Deadline deadline) {
  return core_->receiver().recv(options, deadline);
}
Result<void> Pipe::recv_into(TensorDict& destination, Deadline deadline, const OnStream& on) {
  return core_->receiver().recv_into(destination, on, deadline);
}
Result<Message> Pipe::recv_message(Deadline deadline) {
  return core_->receiver().recv_message(deadline);
}
Completion<TensorDict> Pipe::recv_async(const RecvOptions& options) {
  return core_->recv_async(options);
}
Completion<TensorDict> Pipe::recv_into_async(TensorDict destination) {
  return core_->recv_into_async(std::move(destination));
}
void Pipe::give_back(Message message) { core_->receiver().give_back(std::move(message)); }
Result<void> Pipe::give_back_from(const TensorDict& destination) {
  return core_->receiver().give_back_from(destination);
}
Completion<Message> Pipe::recv_message_async() { return core_->recv_message_async(); }
PipeRange Pipe::each(std::chrono::nanoseconds per_message) { return PipeRange(*this, per_message); }

void PipeRange::advance() {
  if (failed_) {
    current_.reset();
    return;
  }
  current_.emplace(pipe_->recv(per_message_));
  if (current_->has_value()) return;
  failed_ = true;
  if (current_->error().code == ErrorCode::end_of_stream) current_.reset();
}

Result<void> Pipe::flush(Deadline deadline) { return core_->sender().flush(deadline); }
Result<void> Pipe::close(Deadline deadline) { return core_->close(deadline); }
Result<void> Pipe::finish_sending(Deadline deadline) { return core_->sender().finish(deadline); }
void Pipe::cancel() { core_->cancel(); }
void Pipe::cancel(const Error& reason) { core_->cancel(reason); }
Path Pipe::path() const { return core_->link().path(); }
PeerIdentity Pipe::peer() const { return core_->link().peer(); }
PipeStats Pipe::stats() const { return core_->stats(); }
std::vector<PathOfDevice> Pipe::device_paths() const {
  return detail::paths_of_devices(core_->link(), core_->context()->options().device_path);
}

std::ostream& operator<<(std::ostream& out, const PipeStats& stats) {
  return out << "sent " << stats.messages_sent << " messages (" << stats.bytes_sent << " bytes, "
             << stats.loans_sent << " loans), received " << stats.messages_received << " ("
             << stats.bytes_received << " bytes), copies " << stats.copies << " ("
             << stats.bytes_copied << " bytes; inline " << stats.copied_inline << ", low credit "
             << stats.copied_low_credit << ", other link " << stats.copied_other_link
             << "), from GPUs " << stats.copies_d2h << " (" << stats.bytes_d2h
             << " bytes), to GPUs " << stats.copies_h2d << " (" << stats.bytes_h2d
             << " bytes), between GPUs " << stats.copies_d2d << " (" << stats.bytes_d2d
             << " bytes), schemas " << stats.schemas_announced << ", waits " << stats.waits
             << ", dropped " << stats.dropped << ", incomplete " << stats.incomplete;
}

}  // namespace tendon::v0
