// SPDX-License-Identifier: Apache-2.0
// The only place that states the version: CMake, pkg-config, the CLI and the hello read it here. As
// the lowest header it is also the first to open `inline namespace v0`. Files of src/ open it again
// as `tendon::v0`, which indexers (ctags, cscope) understand.
#pragma once

#include <string_view>

namespace tendon {
inline namespace v0 {

inline constexpr int kVersionMajor = 0;
inline constexpr int kVersionMinor = 1;
inline constexpr int kVersionPatch = 0;
inline constexpr std::string_view kVersion = "0.1.0";

/// Version of the wire protocol (docs/protocol.md), independent of the library's version.
inline constexpr int kProtocolMajor = 1;
inline constexpr int kProtocolMinor = 2;
/// The oldest minor version that this build still speaks: N and N-1 interoperate.
inline constexpr int kProtocolMinMinor = 0;

}  // namespace v0
}  // namespace tendon
