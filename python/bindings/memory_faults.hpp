// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tendon::python {

/// Lets this process say, before SIGSEGV ends it, which memory of Tendon it touched: what its
/// parent received, or what may only be read. Nothing where SIGSEGV has a handler already, and
/// where TENDON_EXPLAIN_SEGV is "off". The signal ends the process as before.
void explain_memory_faults();

}  // namespace tendon::python
