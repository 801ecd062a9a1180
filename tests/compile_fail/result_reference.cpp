// SPDX-License-Identifier: Apache-2.0
// A Result holds a value: one that holds a reference would outlive what it refers to.
// expect: a Result holds a value
#include <tendon/core/result.hpp>

#ifdef TENDON_MUST_COMPILE
using Held = int*;
#else
using Held = int&;
#endif

bool use(const tendon::Result<Held>& result) { return result.has_value(); }
