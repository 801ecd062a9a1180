// SPDX-License-Identifier: Apache-2.0
#include <tendon/runtime/context.hpp>

#include "runtime/engine.hpp"

namespace tendon::v0 {

Context::Context(std::shared_ptr<detail::Engine> engine) : engine_(std::move(engine)) {}
Context::Context(Context&&) noexcept = default;

Context& Context::operator=(Context&& other) noexcept {
  if (this != &other) {
    if (engine_ != nullptr) (void)engine_->close(engine_->options().linger);
    engine_ = std::move(other.engine_);
  }
  return *this;
}

Context::~Context() {
  if (engine_ != nullptr) (void)engine_->close(engine_->options().linger);
}

Result<Context> Context::create(ContextOptions options) {
  TENDON_TRY(engine, detail::Engine::create(std::move(options)));
  return Context(std::move(engine));
}

Result<void> Context::close(Deadline deadline) { return engine_->close(deadline); }
const std::string& Context::name() const& noexcept { return engine_->options().name; }
ContextId Context::id() const noexcept { return engine_->id(); }
Pool Context::pool() const { return Pool(engine_->pool()); }
std::string Context::describe() const { return engine_->describe(); }
std::vector<PeerIdentity> Context::members() const { return engine_->members(); }
void Context::on_member(std::function<void(const MemberEvent&)> callback) {
  engine_->on_member(std::move(callback));
}
bool Context::progress() { return engine_->progress(); }
int Context::fd() const noexcept { return engine_->user_fd(); }
bool Context::arm() { return engine_->arm(); }

}  // namespace tendon::v0
