// SPDX-License-Identifier: Apache-2.0
// Places where a test can make this process die, stop or fail. In .cpp files only: no class layout
// depends on them. The `test` preset compiles them in, a release never; `tendon info` shows whether
// it did.
#pragma once

#include <string_view>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// True in builds that carry failpoints.
[[nodiscard]] bool failpoints_built() noexcept;

#ifdef TENDON_FAILPOINTS
/// Follows TENDON_FAILPOINTS="name=kill|stop|error[@n],...". At the n-th passage (first by default)
/// the process kills or stops itself, or true is returned and the caller fails as it would by
/// itself. Before that, a line with the name is added to the file of TENDON_FAILPOINT_REPORT.
[[nodiscard]] bool failpoint_hit(std::string_view name) noexcept;
#define TENDON_FAILPOINT(name) ::tendon::detail::failpoint_hit(name)
#else
#define TENDON_FAILPOINT(name) false
#endif

}  // namespace tendon::v0::detail
