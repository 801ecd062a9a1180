// SPDX-License-Identifier: Apache-2.0
// Makes a process that dies of a wrong access to memory of Tendon print the reason first.
#include "memory_faults.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "bindings.hpp"
#include "memory/mapped_ranges.hpp"
#include "read_only_memory.hpp"

namespace tendon::python {
namespace {

constexpr std::string_view kLostByFork =
    "tendon: this process was forked, and touches memory that its parent received or lent, which "
    "no child inherits. Receive with mode='copy' what children read, receive in the child, or "
    "start it by spawn (docs/fork.md).\n";
constexpr std::string_view kReadOnly[] = {
    "tendon: this program wrote to what it received on '",
    "', which may only be read: others read the same memory. Copies may be written: "
    "recv(mode='copy') gives arrays, recv(as_=torch) and recv(as_=TensorDict) give tensors, "
    "copy.deepcopy takes what a handler is asked (docs/python.md).\n"};

/// A line of text that uses no heap memory.
class Line {
 public:
  void add(std::string_view text) noexcept {
    const std::size_t size = std::min(text.size(), text_.size() - size_);
    std::copy_n(text.begin(), size, text_.begin() + static_cast<std::ptrdiff_t>(size_));
    size_ += size;
  }
  void write() const noexcept {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text_.data(), size_);
  }

 private:
  std::array<char, 640> text_;
  std::size_t size_ = 0;
};

void explain(const siginfo_t& fault) noexcept {
  Line line;
  if (fault.si_code == SEGV_ACCERR && detail::is_mapped(fault.si_addr)) {
    const std::string_view key = key_of_read_only(fault.si_addr);
    if (key.empty()) return;
    line.add(kReadOnly[0]);
    line.add(key);
    line.add(kReadOnly[1]);
  } else if (detail::was_lost_by_fork(fault.si_addr)) {
    line.add(kLostByFork);
  }
  line.write();
}

std::atomic_flag is_explained;

// Calls only functions that are legal in a signal handler.
void on_segv(int number, siginfo_t* info, void*) {
  // A memory fault repeats when this returns; a signal that a process sent does not.
  if (info->si_code != SEGV_MAPERR && info->si_code != SEGV_ACCERR) {
    signal(SIGSEGV, SIG_DFL);
    raise(number);
    return;
  }
  // Several threads of torch may write: the other ones fault again until the first has explained
  // it.
  if (is_explained.test_and_set()) return;
  explain(*info);
  signal(SIGSEGV, SIG_DFL);
}

}  // namespace

// Leaves the handlers of others alone, such as faulthandler's.
void explain_memory_faults() {
  const char* const word = std::getenv("TENDON_EXPLAIN_SEGV");
  if (word != nullptr && std::string_view(word) == "off") return;
  struct sigaction now {};
  if (sigaction(SIGSEGV, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL) return;
  struct sigaction ours {};
  ours.sa_sigaction = on_segv;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  (void)sigaction(SIGSEGV, &ours, nullptr);
}

void bind_memory_faults(nb::module_& module) {
  module.def("_explain_memory_faults", explain_memory_faults);
}

}  // namespace tendon::python
