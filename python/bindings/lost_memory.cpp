// SPDX-License-Identifier: Apache-2.0
// Memory that a parent received is not there in a forked child: one that touches it dies, and says
// why before.
#include <signal.h>
#include <unistd.h>

#include <string_view>

#include "bindings.hpp"
#include "memory/mapped_ranges.hpp"

namespace tendon::python {
namespace {

constexpr std::string_view kWhy =
    "tendon: this process was forked, and touches memory that its parent received or lent, which "
    "no child inherits. Receive with mode='copy' what children read, receive in the child, or "
    "start it by spawn (docs/fork.md).\n";

// Only what may be called in a signal handler.
void on_segv(int number, siginfo_t* info, void*) {
  signal(SIGSEGV, SIG_DFL);
  const bool is_fault = info->si_code == SEGV_MAPERR || info->si_code == SEGV_ACCERR;
  if (is_fault && detail::was_lost_by_fork(info->si_addr)) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kWhy.data(), kWhy.size());
  }
  // A fault comes again when this returns; a signal that somebody sent does not.
  if (!is_fault) raise(number);
}

// Handlers of others, as that of faulthandler, are left alone.
void explain_lost_memory() {
  struct sigaction now {};
  if (sigaction(SIGSEGV, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL) return;
  struct sigaction ours {};
  ours.sa_sigaction = on_segv;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  (void)sigaction(SIGSEGV, &ours, nullptr);
}

}  // namespace

void bind_lost_memory(nb::module_& module) {
  module.def("_explain_lost_memory", explain_lost_memory);
}

}  // namespace tendon::python
