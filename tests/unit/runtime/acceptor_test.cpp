// SPDX-License-Identifier: Apache-2.0
// What strangers at a listener may cost before they are known.
#include "runtime/acceptor.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <future>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "session/hello.hpp"
#include "support/pipe_pair.hpp"
#include "support/raw_client.hpp"

namespace tendon::test {
namespace {

std::size_t open_descriptors() {
  return static_cast<std::size_t>(std::distance(
      std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

std::string abstract_name() { return "@tendon-acceptor-" + std::to_string(getpid()); }

detail::OwnedFd connect_unix(const std::string& name) {
  detail::OwnedFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data() + 1, name.size() - 1);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address),
                    static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())),
            0);
  return fd;
}

// `bytes` with `count` copies of `descriptor` beside them.
void send_descriptors(int fd, std::string bytes, int descriptor, std::size_t count) {
  iovec io{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 8)> control{};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int) * count);
  const std::vector<int> all(count, descriptor);
  std::memcpy(CMSG_DATA(header), all.data(), sizeof(int) * count);
  EXPECT_EQ(sendmsg(fd, &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

TEST(AcceptorLimits, AtMostSixteenConnectionsAreTakenInOneEvent) {
  Context context = Context::create({.progress = Progress::manual}).value();
  Listener listener = Listener::bind(context, "127.0.0.1:0").value();
  std::vector<detail::OwnedFd> strangers;
  for (int i = 0; i < 40; ++i) strangers.push_back(connect_raw(listener.address()));
  const std::size_t before = open_descriptors();
  while (context.progress() && open_descriptors() == before) continue;
  EXPECT_EQ(open_descriptors() - before, 16u);
  EXPECT_TRUE(
      eventually([&] { return open_descriptors() - before == 40; }, [&] { context.progress(); }));
}

TEST(AcceptorLimits, MoreDescriptorsThanTheProtocolHasEndTheHandshake) {
  Context context = Context::create({}).value();
  Listener listener = Listener::bind(context, "unix:" + abstract_name()).value();
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const detail::OwnedFd reader(ends[0]);
  detail::OwnedFd writer(ends[1]);
  const auto frame = encode(claims());
  const std::string hello(reinterpret_cast<const char*>(frame.data()), frame.size());
  for (const std::size_t each : {4u, 1u}) {
    RawWire stranger(connect_unix(abstract_name()));
    std::size_t at = 0;
    for (std::size_t passed = 0; passed < 4; passed += each)
      send_descriptors(stranger.fd(), hello.substr(at++, 1), writer.get(), each);
    send_all(stranger.fd(), hello.substr(at));
    EXPECT_FALSE(stranger.hear()) << "answered one that passed four descriptors";
  }
  writer.reset();
  char byte = 0;
  EXPECT_EQ(read(reader.get(), &byte, 1), 0) << "every one of them is closed again";
}

TEST(AcceptorLimits, AnotherUserOfAUnixSocketIsRefusedBeforeItSaysAnything) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  Context context = Context::create({}).value();
  Listener listener = Listener::bind(context, "unix:" + abstract_name()).value();
  std::thread stranger([&] {
    // The plain system call concerns this thread only.
    ASSERT_EQ(syscall(SYS_setresuid, 65534, 65534, 65534), 0);
    RawWire wire(connect_unix(abstract_name()));
    EXPECT_TRUE(is_refusal(wire.hear(), ErrorCode::permission_denied, {"uid"}));
    EXPECT_FALSE(wire.hear());
  });
  stranger.join();
}

// Its last share goes while a pipe is opened, as that of a group's may whose members leave.
class Vanishing final : public detail::OpenHandler {
 public:
  explicit Vanishing(std::promise<bool>& can_lock) : can_lock_(can_lock) {}
  // What an end does: it takes the lock of a link, to leave it.
  ~Vanishing() override {
    auto can_lock = std::async(std::launch::async, [this] {
      return eventually([this] {
        if (!link_->receive_mutex().try_lock()) return false;
        link_->receive_mutex().unlock();
        return true;
      });
    });
    can_lock_.set_value(can_lock.get());
  }
  Result<void> may_open() override { return {}; }
  Result<std::shared_ptr<detail::MessageSink>> on_open(std::shared_ptr<detail::Link> link,
                                                       std::uint32_t) override {
    link_ = std::move(link);
    self.reset();
    return Error{ErrorCode::unreachable, "test", "gone"};
  }
  void on_context_closed() override {}

  std::shared_ptr<Vanishing> self;

 private:
  std::promise<bool>& can_lock_;
  std::shared_ptr<detail::Link> link_;
};

TEST(OpenHandlers, EndWithoutTheLockOfTheLink) {
  Context server = Context::create({}).value();
  Context client = Context::create({}).value();
  std::promise<bool> can_lock;
  auto handler = std::make_shared<Vanishing>(can_lock);
  handler->self = handler;
  const auto acceptor =
      detail::Acceptor::bind(detail::Engine::of(server), "127.0.0.1:0", Profile::local, handler)
          .value();
  handler.reset();
  const auto pipe = Pipe::connect(client, acceptor->address(), kPatience);
  ASSERT_TRUE(pipe) << pipe.error().message();
  EXPECT_TRUE(can_lock.get_future().get());
}

}  // namespace
}  // namespace tendon::test
