// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tendon::cli {

/// Descriptors 0 to 2 that the caller closed are opened, so that nothing else gets their numbers:
/// what reads finds the end, what writes fails as before.
void open_missing_streams();

/// Lets go of stdin, so that its writer depends on the children that have it.
void release_stdin();

}  // namespace tendon::cli
