// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tendon::python {

/// Makes this process print, before SIGSEGV ends it, which memory of Tendon it touched: memory that
/// its parent received, or read-only memory. Does nothing if SIGSEGV already has a handler or
/// TENDON_EXPLAIN_SEGV is "off". The signal still ends the process.
void explain_memory_faults();

}  // namespace tendon::python
