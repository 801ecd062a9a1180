// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Marks the names that a shared libtendon exports; all others are hidden.
#define TENDON_API __attribute__((visibility("default")))
