// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Marks the functions of `_tendon` that the package's other extension modules of this build call.
#define TENDON_BETWEEN_MODULES [[gnu::visibility("default")]]
