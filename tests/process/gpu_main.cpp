// SPDX-License-Identifier: Apache-2.0
// A process with GPUs of the double, which obeys its input line by line. SIGUSR1 releases the work
// that `gate` stopped.
#include <signal.h>
#include <sys/mman.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/mutex.hpp>
#include <tendon/fabric/node.hpp>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/runtime/context.hpp>
#include <utility>
#include <vector>

#include "process/dialogue.hpp"
#include "runtime/context_core.hpp"
#include "support/batches.hpp"
#include "support/child.hpp"
#include "support/cuda/program_gpus.hpp"
#include "support/pipe_pair.hpp"
#include "transport/shared_memory_link.hpp"
#include "transport/shm/devices_out.hpp"

namespace tendon::test {
namespace {

using detail::ReadyWords;
using std::chrono::milliseconds;

std::atomic<Gate*> closed_gate{nullptr};

void open_gate(int) {
  if (Gate* const gate = closed_gate.load()) gate->open();
}

class Program {
 public:
  explicit Program(ContextOptions options)
      : transport_(options.transport),
        name_(options.name),
        context_(Context::create(std::move(options)).value()) {}
  ~Program() {
    drop_all();
    closed_gate.store(nullptr);
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
    if (verb == "listen") return listen();
    if (verb == "accept") return accept(words);
    if (verb == "connect") return connect(words);
    if (verb == "prepare") return prepare(words);
    if (verb == "gate") return gate();
    if (verb == "send") return send(words);
    if (verb == "send-async") return send_async(words);
    if (verb == "wait") return told(sent_->wait(deadline(words)));
    if (verb == "recv") return receive(words);
    if (verb == "join") return join(words);
    if (verb == "publisher") return declare();
    if (verb == "subscriber") return subscribe(words);
    if (verb == "publish") return publish(words);
    if (verb == "take") return take(words);
    if (verb == "release") return held_.clear(), "ok";
    if (verb == "use") return use(words);
    if (verb == "calls") return calls(words);
    if (verb == "lose") return lose(words);
    if (verb == "child") return run_child();
    if (verb == "survivor") return leave_survivor(words);
    if (verb == "stat") return stat(words);
    if (verb == "alone") return wait_until([&] { return has_no_peer(); });
    if (verb == "returned") return wait_until([&] { return has_all_slots(); });
    if (verb == "flush") return told(pipe_->flush(deadline(words)));
    if (verb == "close") return told(pipe_->close(deadline(words)));
    if (verb == "drop-pipe") return pipe_.reset(), "ok";
    if (verb == "drop-all") return drop_all(), "ok";
    return "error unknown " + verb;
  }

  std::string listen() {
    auto listener = Listener::bind(*context_, "127.0.0.1:0");
    if (!listener) return told(listener.error());
    listener_ = *std::move(listener);
    return "ok " + listener_->address();
  }
  std::string accept(Words& words) {
    auto made = listener_->accept(deadline(words));
    if (made) {
      pipe_ = *std::move(made);
      accepted_ = link();
    }
    return told(made);
  }
  std::string connect(Words& words) {
    const auto address = next<std::string>(words, "");
    auto made = Pipe::connect(*context_, address, deadline(words));
    if (made) pipe_ = *std::move(made);
    return told(made);
  }
  // Makes the batch of all later sends: `seed size device`.
  std::string prepare(Words& words) {
    const auto seed = next<std::uint64_t>(words, 0);
    const auto size = next<std::uint64_t>(words, 0);
    const Device device = parse_device(next<std::string>(words, "cpu")).value();
    TensorDict batch = patterned(seed, size);
    if (device != cpu()) batch.set("x", gpus().on_gpu(batch["x"], device));
    batch_ = std::move(batch);
    return "ok";
  }
  // Adds work that waits to the stream of all later sends of GPU 0.
  std::string gate() {
    closed_gate.store(nullptr);
    gate_.reset();
    stream_ = gpus().make_stream(kGpu0);
    gate_.emplace(gpus().fake, stream_);
    gate_->wait_until_reached();
    closed_gate.store(&*gate_);
    return "ok";
  }
  std::string send(Words& words) {
    answer("sending");
    return told(pipe_->send(batch_, deadline(words), {.stream = stream_}));
  }
  std::string send_async(Words&) {
    sent_ = pipe_->send_async(batch_, {.stream = stream_});
    return "ok";
  }
  // `seed size where`: "there" is where the sender had it. Answers where it lies.
  std::string receive(Words& words) {
    const auto seed = next<std::uint64_t>(words, 0);
    const auto size = next<std::uint64_t>(words, 0);
    const auto where = next<std::string>(words, "there");
    RecvOptions options;
    if (where != "there") options.device = parse_device(where).value();
    auto received = pipe_->recv(options, deadline(words));
    if (!received) return told(received.error());
    return keep(*std::move(received), seed, size);
  }
  std::string keep(TensorDict received, std::uint64_t seed, std::uint64_t size) {
    const Device device = received["x"].device();
    TensorDict host = received;
    if (device != cpu()) host.set("x", gpus().read(host["x"]));
    if (const auto right = is_patterned(host, seed, size); !right)
      return std::string("error wrong ") + right.message();
    held_.push_back(std::move(received));
    return "ok " + to_string(device);
  }
  // Makes a node that finds the node at this address.
  std::string join(Words& words) {
    NodeOptions options{.domain = "gpu",
                        .name = name_,
                        .peers = std::vector<std::string>{},
                        .listen = "127.0.0.1:0"};
    if (const auto peer = next<std::string>(words, ""); !peer.empty())
      options.peers->push_back(peer);
    auto node = Node::join(*context_, std::move(options), kPatience);
    if (!node) return told(node.error());
    node_ = *std::move(node);
    return "ok " + node_->address();
  }
  std::string declare() {
    auto made = Publisher::declare(*node_, "camera");
    if (made) publisher_ = *std::move(made);
    return told(made);
  }
  std::string subscribe(Words& words) {
    auto made = Subscriber::declare(*node_, "camera");
    if (!made) return told(made.error());
    subscriber_ = *std::move(made);
    return told(subscriber_->wait_for_publishers(1, deadline(words)));
  }
  std::string publish(Words& words) {
    return told(publisher_->publish(batch_, deadline(words), {.stream = stream_}));
  }
  // The same as receive().
  std::string take(Words& words) {
    const auto seed = next<std::uint64_t>(words, 0);
    const auto size = next<std::uint64_t>(words, 0);
    const auto where = next<std::string>(words, "there");
    DeviceTarget target;
    if (where != "there") target.device = parse_device(where).value();
    auto sample = subscriber_->recv(target, deadline(words));
    if (!sample) return told(sample.error());
    return keep(*std::move(sample->tensors), seed, size);
  }
  std::string use(Words& words) {
    (void)gpus().program.gpu(next(words, 0));
    return "ok";
  }
  std::string calls(Words& words) {
    const auto name = next<std::string>(words, "all");
    return "ok " + std::to_string(gpus().fake.calls(name == "all" ? nullptr : name.c_str()));
  }
  std::string lose(Words& words) {
    gpus().fake.lose(next(words, 0), static_cast<int>(cuda::Status::illegal_address));
    return "ok";
  }

  // A fork of this process uses the handles of its parent, and drops them. No call reaches the
  // driver.
  std::string run_child() {
    const std::uint64_t before = gpus().fake.calls(nullptr);
    const auto is_forked = [](const auto& result) {
      return !result && result.error().code == ErrorCode::forked;
    };
    const int status = run_in_child([&] {
      if (!is_forked(pipe_->send(batch_, milliseconds(0)))) return 1;
      if (!is_forked(pipe_->send_async(batch_).wait(milliseconds(0)))) return 2;
      if (!is_forked(pipe_->recv(milliseconds(0)))) return 3;
      if (!is_forked(pipe_->recv({.device = kGpu0}, milliseconds(0)))) return 4;
      {
        // A Context of the child sends a batch in host memory.
        PipePair pair = connect_pair({"", transport_});
        if (!is_forked(pair.client.send(batch_, kPatience))) return 5;
        if (!is_forked(pair.client.send_async(batch_).wait(kPatience))) return 6;
        if (!pair.client.send(numbered(7), kPatience)) return 7;
        if (!is_forked(pair.server.recv({.device = kGpu0}, kPatience))) return 8;
        const auto received = pair.server.recv(kPatience);
        if (!received || number_of(*received) != 7) return 9;
      }
      drop_all();
      return gpus().fake.calls(nullptr) == before ? 0 : 10;
    });
    if (!exited_with(status, 0)) return "error child " + std::to_string(status);
    return "ok";
  }

  // The child lives on when this process dies, as a worker of a data loader does. It stands for
  // work of the GPU that survives too: at SIGUSR1 it writes all ready words that this process got.
  // A "quiet" child only lives, and does not keep the other end of the dialogue open.
  std::string leave_survivor(Words& arguments) {
    const bool is_quiet = next<std::string>(arguments, "") == "quiet";
    ReadyWords* const words = is_quiet ? nullptr : words_for_a_child();
    sigset_t go_on;
    sigemptyset(&go_on);
    sigaddset(&go_on, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &go_on, nullptr);
    const pid_t child = fork();
    if (child == 0) {
      alarm(kLongestChildSeconds);
      if (is_quiet) close(STDOUT_FILENO);
      int number = 0;
      sigwait(&go_on, &number);
      if (words != nullptr)
        for (auto& word : words->words) word.store(std::uint64_t{1} << 40);
      if (!is_quiet) answer("written");
      _exit(0);
    }
    pthread_sigmask(SIG_UNBLOCK, &go_on, nullptr);
    return "ok " + std::to_string(child);
  }
  // Makes a second mapping, because a child does not have Tendon's.
  ReadyWords* words_for_a_child() {
    detail::DevicesOut& devices = link()->shared_memory()->devices_out();
    if (devices.way(0) != detail::DevicesOut::Way::direct) return nullptr;
    const auto words = devices.words(0, gpus().program.gpu(0), kPatience).value();
    void* const memory = mremap(words->memory, 0, sizeof(ReadyWords), MREMAP_MAYMOVE);
    if (memory == MAP_FAILED || madvise(memory, sizeof(ReadyWords), MADV_DOFORK) != 0) _exit(93);
    return static_cast<ReadyWords*>(memory);
  }
  std::string stat(Words& words) {
    const auto name = next<std::string>(words, "");
    const PipeStats stats = pipe_->stats();
    if (name == "incomplete") return "ok " + std::to_string(stats.incomplete);
    if (name == "copies_d2d") return "ok " + std::to_string(stats.copies_d2d);
    return "error unknown " + name;
  }
  template <class Condition>
  std::string wait_until(Condition is_met) {
    return eventually(is_met) ? "ok" : "error timeout";
  }
  // True when its link has ended completely, which happens under its receive lock.
  bool has_no_peer() {
    if (!context_->members().empty()) return false;
    const auto link = accepted_.lock();
    if (link == nullptr) return true;
    const detail::Lock receiving(link->receive_mutex());
    return link->ended();
  }
  // True when no peer has a slot of the pool on a GPU.
  bool has_all_slots() {
    for (const auto& link : *core()->links().all()) (void)link->collect_returns();
    for (const auto& [device, stats] : core()->memory().passed->stats())
      if (stats.used_bytes != 0) return false;
    return true;
  }
  std::shared_ptr<detail::ContextCore> core() { return detail::ContextCore::of(*context_); }
  std::shared_ptr<detail::Link> link() { return core()->links().all()->front(); }

  void drop_all() {
    held_.clear();
    batch_ = TensorDict();
    sent_.reset();
    subscriber_.reset();
    publisher_.reset();
    node_.reset();
    pipe_.reset();
    listener_.reset();
    context_.reset();
  }

  /// Made at the first command that needs them: a process that uses no GPU must not start to use
  /// one.
  ProgramGpus& gpus() { return gpus_ ? *gpus_ : gpus_.emplace(); }

  const Transport transport_;
  const std::string name_;
  std::optional<ProgramGpus> gpus_;
  std::optional<Gate> gate_;
  void* stream_ = kStreamPerThread;
  TensorDict batch_;
  std::optional<Context> context_;
  std::optional<Listener> listener_;
  std::optional<Pipe> pipe_;
  std::weak_ptr<detail::Link> accepted_;
  std::optional<Completion<void>> sent_;
  std::optional<Node> node_;
  std::optional<Publisher> publisher_;
  std::optional<Subscriber> subscriber_;
  std::vector<TensorDict> held_;
};

int run(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGUSR1, &open_gate);
  ContextOptions options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view key = argv[i];
    const std::string value = argv[i + 1];
    if (key == "--name")
      options.name = value;
    else if (key == "--transport")
      options.transport = parse_word<Transport>(value).value();
    else if (key == "--linger-ms")
      options.linger = milliseconds(std::stoul(value));
    else
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
