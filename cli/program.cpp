// SPDX-License-Identifier: Apache-2.0
#include "cli/program.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <tendon/core/error.hpp>
#include <tendon/observe/log.hpp>

#include "cli/output.hpp"
#include "core/environment.hpp"

namespace tendon::cli {
namespace {

// Otherwise the next file or socket would get the number of a closed stdout, and the printed text.
void reserve_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // open() returns the lowest free number; nothing can be written to it.
    if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", O_RDONLY);
  }
}

}  // namespace

int run_program(int argc, char** argv, int (*run)(int argc, char** argv)) {
  // Writing to a closed stdout then fails with an error, instead of silently killing the process in
  // the middle of a transfer.
  std::signal(SIGPIPE, SIG_IGN);
  // The same for a file that grows beyond RLIMIT_FSIZE.
  std::signal(SIGXFSZ, SIG_IGN);
  reserve_standard_descriptors();
  // A verb reports the library's warnings as its error. TENDON_LOG turns the log on again.
  if (detail::environment_variable("TENDON_LOG").empty()) set_log_callback(LogLevel::error, {});
  try {
    return finish_output(run(argc, argv));
  } catch (const Exception& exception) {
    return report(exception.error(), Format::text);
  } catch (const std::exception& exception) {
    return report({ErrorCode::internal, "cli.main", exception.what()}, Format::text);
  }
}

}  // namespace tendon::cli
