// SPDX-License-Identifier: Apache-2.0
// The other process of the process tests. It obeys the lines of its standard input, and answers
// each with one line, "ok ..." or "error <code> <detail>".
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/runtime/context.hpp>
#include <vector>

#include "process/dialogue.hpp"
#include "support/batches.hpp"

namespace tendon::test {
namespace {

using std::chrono::milliseconds;

Profile profile(Words& words) {
  return parse_word<Profile>(next<std::string>(words, "local")).value();
}

class Program {
 public:
  explicit Program(ContextOptions options) : context_(Context::create(std::move(options)).value()) {
    context_->on_member([this](const MemberEvent& event) {
      std::lock_guard lock(events_mutex_);
      std::ostringstream text;
      text << event;
      events_.push_back(text.str());
      events_changed_.notify_all();
    });
  }

  /// Runs one command; false at the end.
  bool run(const std::string& line) {
    Words words(line);
    const std::string verb = next<std::string>(words, "");
    if (verb == "exit") return false;
    answer(act(verb, words));
    return true;
  }

 private:
  std::string act(const std::string& verb, Words& words) {
    if (verb == "listen") return listen(words);
    if (verb == "connect") return connect(words);
    if (verb == "accept") return accept(words);
    if (verb == "send") return send(words);
    if (verb == "send-many") return send_many(words);
    if (verb == "loan") return loan(words);
    if (verb == "send-loan") return told(pipe().send(std::move(*loan_), deadline(words)));
    if (verb == "recv") return receive(words);
    if (verb == "recv-many") return receive_many(words);
    if (verb == "release") return held_.clear(), "ok";
    if (verb == "check-held") return check_held();
    if (verb == "flush") return told(pipe().flush(deadline(words)));
    if (verb == "finish") return told(pipe().finish_sending(deadline(words)));
    if (verb == "close") return told(pipe().close(deadline(words)));
    if (verb == "cancel") return pipe().cancel(), "ok";
    if (verb == "drop-pipe") return pipe_.reset(), "ok";
    if (verb == "path") return "ok " + pipe().path().to_string();
    if (verb == "event") return event(words);
    if (verb == "fork") return fork_child();
    if (verb == "touch") return touch();
    if (verb == "every-call") return every_call();
    if (verb == "destroy") return destroy();
    if (verb == "descriptors") return descriptors(words);
    if (verb == "address-space") return address_space(words);
    if (verb == "describe") return "ok " + one_line(context_->describe());
    return "error unknown " + verb;
  }

  Pipe& pipe() { return pipe_.value(); }

  std::string listen(Words& words) {
    const auto address = next<std::string>(words, "127.0.0.1:0");
    auto listener = Listener::bind(*context_, address, {.security = {profile(words)}});
    if (!listener) return told(listener.error());
    listener_ = *std::move(listener);
    return "ok " + listener_->address();
  }
  std::string connect(Words& words) {
    const auto address = next<std::string>(words, "");
    const Profile wanted = profile(words);
    auto made = Pipe::connect(*context_, address, deadline(words), {.security = {wanted}});
    if (!made) return told(made.error());
    pipe_ = *std::move(made);
    return "ok " + pipe_->path().to_string();
  }
  std::string accept(Words& words) {
    auto made = listener_->accept(deadline(words));
    if (!made) return told(made.error());
    pipe_ = *std::move(made);
    return "ok " + pipe_->peer().to_string();
  }
  std::string send(Words& words) {
    const auto seed = next<std::uint64_t>(words, 0);
    const auto size = next<std::uint64_t>(words, 0);
    return told(pipe().send(patterned(seed, size), deadline(words)));
  }
  // Sends numbered messages of two sizes in turn; reports each after it was sent.
  std::string send_many(Words& words) {
    const auto count = next<std::uint64_t>(words, 0);
    const auto small = next<std::uint64_t>(words, 0);
    const auto large = next<std::uint64_t>(words, 0);
    for (std::uint64_t n = 0; n < count; ++n) {
      const auto sent = pipe().send(patterned(n, n % 2 == 0 ? large : small), deadline(words));
      if (!sent) return told(sent.error());
      answer("sent " + std::to_string(n));
    }
    return "ok";
  }
  std::string loan(Words& words) {
    const auto seed = next<std::uint64_t>(words, 0);
    const auto size = next<std::uint64_t>(words, 0);
    auto loan = pipe().loan(bytes_schema(size), deadline(words));
    if (!loan) return told(loan.error());
    fill_pattern((*loan)["x"].mutable_bytes(), seed);
    loan_ = *std::move(loan);
    return "ok";
  }
  // Takes one message, checks it and keeps it.
  std::string receive(Words& words) {
    const auto seed = next<std::uint64_t>(words, 0);
    const auto size = next<std::uint64_t>(words, 0);
    auto received = pipe().recv(deadline(words));
    if (!received) return told(received.error());
    if (const auto right = is_patterned(*received, seed, size); !right)
      return std::string("error wrong ") + right.message();
    held_.push_back({*std::move(received), seed, size});
    return "ok";
  }
  // Takes messages in the order of send-many, until the stream ends in any way; keeps every third.
  std::string receive_many(Words& words) {
    const auto small = next<std::uint64_t>(words, 0);
    const auto large = next<std::uint64_t>(words, 0);
    for (std::uint64_t n = 0;; ++n) {
      auto received = pipe().recv(deadline(words));
      if (!received) return "ok " + std::to_string(n) + " " + told(received.error());
      if (const auto right = is_patterned(*received, n, n % 2 == 0 ? large : small); !right)
        return "error wrong message " + std::to_string(n) + ": " + right.message();
      if (n % 3 == 0) held_.push_back({*std::move(received), n, n % 2 == 0 ? large : small});
      if (held_.size() > 4) held_.erase(held_.begin());
      answer("received " + std::to_string(n));
    }
  }
  std::string check_held() {
    for (const Held& held : held_)
      if (const auto right = is_patterned(held.batch, held.seed, held.size); !right)
        return std::string("error wrong ") + right.message();
    return "ok " + std::to_string(held_.size());
  }
  std::string event(Words& words) {
    const auto kind = next<std::string>(words, "");
    std::unique_lock lock(events_mutex_);
    std::string found;
    const auto has_come = [&] {
      for (const std::string& event : events_)
        if (event.starts_with(kind + ":")) found = event;
      return !found.empty();
    };
    if (!events_changed_.wait_for(lock, std::chrono::seconds(20), has_come))
      return "error timeout no " + kind;
    return "ok " + one_line(found);
  }

  // The child keeps copies of everything, and executes the commands after its parent dies.
  std::string fork_child() {
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    sigprocmask(SIG_BLOCK, &wanted, nullptr);
    int ready[2];
    if (::pipe(ready) != 0) return "error system pipe";
    const pid_t child = ::fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGUSR1);
      (void)!write(ready[1], "x", 1);
      int signal_number = 0;
      while (sigwait(&wanted, &signal_number) != 0) {
      }
      return "ok child";
    }
    char byte;
    (void)!read(ready[0], &byte, 1);
    close(ready[0]);
    close(ready[1]);
    return "ok " + std::to_string(child);
  }
  std::string touch() {
    // The default action: under a sanitizer too this must be a death by signal.
    signal(SIGSEGV, SIG_DFL);
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    volatile const std::byte* data = held_.front().batch["x"].data();
    return "ok " + std::to_string(static_cast<int>(data[0]));
  }
  std::string every_call() {
    std::map<std::string, Result<void>> results;
    const auto note = [&](const char* name, const auto& result) {
      results.emplace(name, result ? Result<void>() : Result<void>(result.error()));
    };
    note("recv", pipe().recv(milliseconds(0)));
    note("recv_message", pipe().recv_message(milliseconds(0)));
    note("send", pipe().send(numbered(1), milliseconds(0)));
    note("loan", pipe().loan(bytes_schema(10), milliseconds(0)));
    note("flush", pipe().flush(milliseconds(0)));
    note("finish_sending", pipe().finish_sending(milliseconds(0)));
    note("close", pipe().close(milliseconds(0)));
    note("connect", Pipe::connect(*context_, "127.0.0.1:1", milliseconds(0)));
    note("bind", Listener::bind(*context_, "127.0.0.1:0"));
    note("recv_async", pipe().recv_async().wait(milliseconds(0)));
    note("send_async", pipe().send_async(numbered(1)).wait(milliseconds(0)));
    note("allocate", context_->pool().allocate(100));
    pipe().cancel();
    (void)context_->progress();
    (void)context_->members();
    (void)context_->describe();
    note("context.close", context_->close(milliseconds(0)));
    for (const auto& [name, result] : results) {
      if (result || result.error().code != ErrorCode::forked)
        return "error wrong " + name + ": " + (result ? "succeeded" : told(result.error()));
    }
    return "ok " + std::to_string(results.size());
  }
  std::string destroy() {
    held_.clear();
    loan_.reset();
    pipe_.reset();
    listener_.reset();
    context_.reset();
    return "ok";
  }
  // "none" leaves this process without a free descriptor; a number frees that many.
  std::string descriptors(Words& words) {
    const auto spare = next<std::size_t>(words, 0);
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    if (usual_descriptors_ == 0) usual_descriptors_ = limit.rlim_cur;
    if (spare >= 1000) {
      limit.rlim_cur = usual_descriptors_;
    } else {
      // The kernel assigns the lowest numbers first: below the limit all except `spare` must be
      // taken.
      std::size_t taken_below = 0;
      std::size_t number = 0;
      for (std::size_t missing = 0; missing <= spare; ++number) {
        if (fcntl_is_open(static_cast<int>(number)))
          ++taken_below;
        else
          ++missing;
      }
      limit.rlim_cur = number - 1;
    }
    setrlimit(RLIMIT_NOFILE, &limit);
    return "ok " + std::to_string(limit.rlim_cur);
  }
  // Leaves this many bytes of address space above the mapped ones; "any" lifts the limit.
  static std::string address_space(Words& words) {
    const auto spare = next<std::string>(words, "any");
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = limit.rlim_max;
    if (spare != "any") {
      std::uint64_t mapped_pages = 0;
      std::ifstream("/proc/self/statm") >> mapped_pages;
      limit.rlim_cur =
          mapped_pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) + std::stoull(spare);
    }
    return setrlimit(RLIMIT_AS, &limit) == 0 ? "ok" : "error setrlimit";
  }
  static bool fcntl_is_open(int fd) {
    return std::filesystem::exists("/proc/self/fd/" + std::to_string(fd)) ||
           std::filesystem::is_symlink("/proc/self/fd/" + std::to_string(fd));
  }

  struct Held {
    TensorDict batch;
    std::uint64_t seed;
    std::uint64_t size;
  };
  std::mutex events_mutex_;
  std::condition_variable events_changed_;
  std::vector<std::string> events_;
  std::optional<Context> context_;
  std::optional<Listener> listener_;
  std::optional<Pipe> pipe_;
  std::optional<Loan> loan_;
  std::vector<Held> held_;
  rlim_t usual_descriptors_ = 0;
};

int run(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  ContextOptions options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view key = argv[i];
    const std::string value = argv[i + 1];
    if (key == "--name")
      options.name = value;
    else if (key == "--transport")
      options.transport = parse_word<Transport>(value).value();
    else if (key == "--progress")
      options.progress = parse_word<Progress>(value).value();
    else if (key == "--lease-ms")
      options.lease = milliseconds(std::stoul(value));
    else if (key == "--linger-ms")
      options.linger = milliseconds(std::stoul(value));
    else if (key == "--link-cap")
      options.link_cap_bytes = options.pool_cap_bytes = std::stoull(value);
    else if (key == "--uid") {
      const auto id = static_cast<uid_t>(std::stoul(value));
      if (setresgid(id, id, id) != 0 || setresuid(id, id, id) != 0) return 91;
    } else
      return 92;
  }
  Program program(options);
  answer("ready");
  for (auto line = read_line(); line; line = read_line())
    if (!program.run(*line)) return 0;
  return 0;
}

}  // namespace
}  // namespace tendon::test

int main(int argc, char** argv) { return tendon::test::run(argc, argv); }
