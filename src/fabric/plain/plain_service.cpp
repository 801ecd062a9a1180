// SPDX-License-Identifier: Apache-2.0
#include "fabric/plain/plain_service.hpp"

#include <utility>

namespace tendon::v0::detail {

Error no_plain_peers(std::string_view where) {
  return Error{
      ErrorCode::not_supported, where,
      "plain Zenoh peers are heard by nodes that are found by Zenoh: join without `peers`, "
      "or name `routers`"};
}

Result<PlainService> PlainService::declare(const Source& source, const KeyExpression& key,
                                           const PublisherOptions& options) {
  PlainService service;
  PlainForm form{.most_bytes = options.plain_bytes};
  if (!options.encoding.empty()) form.encoding = options.encoding;
  if (options.plain_peers == PlainPeers::bare) {
    if (source.zenoh == nullptr) return no_plain_peers("publisher.declare");
    TENDON_TRY(bare, BareTopic::declare(*source.zenoh, key, std::move(form), source.wake));
    service.bare_ = std::move(bare);
  } else if (options.plain_peers == PlainPeers::automatic && source.zenoh != nullptr) {
    TENDON_TRY(topic, PlainTopic::declare(*source.zenoh, source.outlet, key,
                                          {.context = source.context,
                                           .entity = source.entity,
                                           .form = std::move(form),
                                           .on_matching = source.wake}));
    service.topic_ = std::move(topic);
    service.audience_ = std::make_shared<PlainAudience>(source.zenoh, key, source.wake);
  }
  return service;
}

std::size_t PlainService::peer_count() const {
  if (bare_ != nullptr) return bare_->matches() ? 1 : 0;
  return is_asked_for() && audience_->is_plain() ? 1 : 0;
}

void PlainService::close(Deadline deadline) {
  if (audience_ != nullptr) audience_->close();
  if (topic_ != nullptr) topic_->close(deadline);
  if (bare_ != nullptr) bare_->close();
}

}  // namespace tendon::v0::detail
