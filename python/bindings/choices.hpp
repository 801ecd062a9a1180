// SPDX-License-Identifier: Apache-2.0
// Words of Python that are enumerators of C++. Each raises ValueError with the legal words.
#pragma once

#include <string>
#include <tendon/fabric/node.hpp>
#include <tendon/fabric/publisher.hpp>
#include <tendon/fabric/qos.hpp>
#include <tendon/fabric/subscriber.hpp>
#include <tendon/group/options.hpp>
#include <tendon/observe/log.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/tensor/memmap.hpp>

#include "shared.hpp"

namespace tendon::python {

[[nodiscard]] Transport transport_from(const std::string& word);
[[nodiscard]] WaitPolicy wait_policy_from(const std::string& word);
TENDON_BETWEEN_MODULES [[nodiscard]] Profile profile_from(const std::string& word);
[[nodiscard]] RecvMode recv_mode_from(const std::string& word);
/// The `mode` of what lies in memory that others read: does the caller want a copy of its own?
[[nodiscard]] bool wants_copy_from(const std::string& word);
inline constexpr const char* kViewOrCopy = "view_or_copy";
[[nodiscard]] DiscoveryNeed discovery_need_from(const std::string& word);
[[nodiscard]] Minority minority_from(const std::string& word);
[[nodiscard]] Fence fence_from(const std::string& word);
[[nodiscard]] Overflow overflow_from(const std::string& word);
[[nodiscard]] MapMode map_mode_from(const std::string& word);
[[nodiscard]] LogLevel log_level_from(const std::string& word);
[[nodiscard]] Priority priority_from(const std::string& word);
[[nodiscard]] PlainPeers plain_peers_from(const std::string& word);
[[nodiscard]] PlainContent plain_content_from(const std::string& word);

}  // namespace tendon::python
