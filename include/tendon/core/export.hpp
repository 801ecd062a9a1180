// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Marks what a shared libtendon exports; everything else is hidden.
#define TENDON_API __attribute__((visibility("default")))
