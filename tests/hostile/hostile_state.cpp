// SPDX-License-Identifier: Apache-2.0
// Loaded in front of a test program by LD_PRELOAD, it puts the process into a state that a program
// may be in, and a library has to live with. TENDON_HOSTILE_STATE lists the parts, separated by
// commas; each is described where it is made. TENDON_HOSTILE_FOLDER is a folder of its own.
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace {

[[noreturn]] void fail(const std::string& why) {
  std::printf("hostile state: %s\n", why.c_str());
  std::fflush(stdout);
  _exit(99);
}

std::string folder() {
  const char* const text = getenv("TENDON_HOSTILE_FOLDER");
  if (text == nullptr) fail("TENDON_HOSTILE_FOLDER is not set");
  return text;
}

/// Numbers too small for a full mantissa are zero, as with -ffast-math, in all threads.
void flush_to_zero() {
#if defined(__x86_64__)
  constexpr unsigned kFlushToZero = 0x8000;
  constexpr unsigned kDenormalsAreZero = 0x0040;
  _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero);
#endif
}

/// Numbers have a comma in place of the point.
void comma_locale() {
  setenv("LOCPATH", folder().c_str(), 1);
  if (setlocale(LC_ALL, "de_DE.UTF-8") == nullptr) fail("there is no locale de_DE.UTF-8");
}

/// A handler runs a thousand times a second, and interrupts the system calls of all threads.
void signals() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  const int number = SIGRTMIN + 5;
  sigaction(number, &action, nullptr);
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = number;
  timer_t timer{};
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) fail("no timer");
  itimerspec pace{};
  pace.it_value.tv_nsec = pace.it_interval.tv_nsec = 1'000'000;
  timer_settime(timer, 0, &pace, nullptr);
}

/// Descriptor 2 was closed, and belongs to a file of the program's, which has no name any more.
ino_t file_of_the_program = 0;

void descriptor_2() {
  const std::string path = folder() + "/file." + std::to_string(getpid());
  close(STDERR_FILENO);
  struct stat found {};
  if (open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600) != STDERR_FILENO ||
      fstat(STDERR_FILENO, &found) != 0)
    fail("descriptor 2 is another");
  unlink(path.c_str());
  file_of_the_program = found.st_ino;
}

/// No line of ours is in that file.
void check_descriptor_2() {
  struct stat found {};
  if (fstat(STDERR_FILENO, &found) != 0 || found.st_ino != file_of_the_program) return;
  std::string text(static_cast<std::size_t>(found.st_size), '\0');
  if (pread(STDERR_FILENO, text.data(), text.size(), 0) != found.st_size) fail("no such file");
  const auto line = text.find(" tendon[");
  if (line != std::string::npos) fail("a file was written to: " + text.substr(line, 200));
}

/// The runtime directory is not there.
void runtime_directory() {
  const std::string path = folder() + "/rt." + std::to_string(getpid());
  rmdir(path.c_str());
  setenv("TENDON_RUNTIME_DIR", path.c_str(), 1);
}

bool has(const char* part) {
  const char* const list = getenv("TENDON_HOSTILE_STATE");
  return list != nullptr &&
         ("," + std::string(list) + ",").find("," + std::string(part) + ",") != std::string::npos;
}

__attribute__((constructor)) void begin() {
  unsetenv("LD_PRELOAD");  // programs that this one starts are as any
  if (has("flush_to_zero")) flush_to_zero();
  if (has("comma_locale")) comma_locale();
  if (has("signals")) signals();
  if (has("descriptor_2")) descriptor_2();
  if (has("runtime_directory")) runtime_directory();
}

__attribute__((destructor)) void end() {
  if (file_of_the_program != 0) check_descriptor_2();
}

}  // namespace
