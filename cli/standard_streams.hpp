// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tendon::cli {

/// Opens those of descriptors 0 to 2 that the caller closed, so that nothing else gets their
/// numbers: a read finds the end, a write fails as before.
void open_missing_streams();

/// Closes this process's stdin, so that its writer depends on the children that have it.
void release_stdin();

}  // namespace tendon::cli
