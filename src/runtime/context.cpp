// SPDX-License-Identifier: Apache-2.0
#include <tendon/runtime/context.hpp>

#include "core/left_to_parent.hpp"
#include "runtime/context_core.hpp"

namespace tendon::v0 {

Context::Context(std::shared_ptr<detail::ContextCore> context) : core_(std::move(context)) {}
Context::Context(Context&&) noexcept = default;

Context& Context::operator=(Context&& other) noexcept {
  if (this != &other) {
    const Context old(std::move(*this));
    core_ = std::move(other.core_);
  }
  return *this;
}

Context::~Context() {
  if (core_ == nullptr) return;
  if (core_->forked()) {
    detail::leave_to_parent(core_);
  } else if (const auto closed = core_->close(core_->options().linger); !closed) {
    core_->log(LogLevel::warn, "context.close", closed.error().detail);
  }
}

Result<Context> Context::create(ContextOptions options) {
  TENDON_TRY(context, detail::ContextCore::create(std::move(options)));
  return Context(std::move(context));
}

Result<void> Context::close(Deadline deadline) { return core_->close(deadline); }
const std::string& Context::name() const& noexcept { return core_->options().name; }
ContextId Context::id() const noexcept { return core_->id(); }
Pool Context::pool() const { return Pool(core_->memory().host); }
std::string Context::describe() const { return core_->describe(); }
std::vector<PeerIdentity> Context::members() const { return core_->members(); }
void Context::on_member(std::function<void(const MemberEvent&)> callback) {
  core_->on_member(std::move(callback));
}
bool Context::progress() { return core_->progress(); }
int Context::fd() const noexcept { return core_->user_fd(); }
bool Context::arm() { return core_->arm(); }

}  // namespace tendon::v0
