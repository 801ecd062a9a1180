// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the other extension modules of the package call in `_tendon`, of the same build.
#define TENDON_BETWEEN_MODULES [[gnu::visibility("default")]]
