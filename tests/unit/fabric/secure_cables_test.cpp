// SPDX-License-Identifier: Apache-2.0
// Whole links over cables with Profile::secure: through a double of Zenoh that reads and changes
// what a router could, and through a router of the real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "fabric/ways/cables.hpp"
#include "fabric/ways/detours.hpp"
#include "fabric/zenoh/zenoh_session.hpp"
#include "runtime/acceptor.hpp"
#include "runtime/connect.hpp"
#include "session/machine.hpp"
#include "support/batches.hpp"
#include "support/expect.hpp"
#include "support/live_zenoh.hpp"
#include "support/member_events.hpp"
#include "support/scratch_dir.hpp"
#include "support/secure/credentials.hpp"
#include "transport/stream/socket_stream.hpp"

namespace tendon::test {
namespace {

using namespace tendon::detail;
using ::testing::HasSubstr;
using ::testing::Not;

class NoPipes final : public OpenHandler {
 public:
  Result<void> may_open() override { return {}; }
  Result<std::shared_ptr<MessageSink>> on_open(std::shared_ptr<Link>, const Descriptor&,
                                               Bytes) override {
    return Error{ErrorCode::unreachable, "test", "pipes have a listener of their own"};
  }
  void on_context_closed() override {}
};

/// A program on a host of its own, with cables.
struct CabledProgram {
  CabledProgram(const std::string& name, std::shared_ptr<ZenohPort> to)
      : context(Context::create({.name = name, .lease = kLongLease}).value()),
        cables(Cables::create(std::move(to), context.id()).value()) {}

  Context context;
  std::shared_ptr<Cables> cables;
};

Security secure_by(std::shared_ptr<const secure::Credentials> credentials) {
  return {.profile = Profile::secure, .credentials = std::move(credentials)};
}

/// The key of fleet_key(). Sessions by it are renewed each few messages.
std::shared_ptr<const secure::Credentials> fleet_key_renewed_often() {
  secure::CredentialParts parts;
  parts.keys.push_back(shared_key("fleet", 'a'));
  parts.rotation.renewal.bytes = 4096;
  parts.rotation.renewal.starts = 1'000'000;
  return secure::Credentials::make(std::move(parts)).value();
}

/// How often the sessions of all links of this end were renewed.
std::uint64_t renewals_at(const Context& end) {
  std::uint64_t count = 0;
  for (const auto& link : *ContextCore::of(end)->links().all()) count += link->stats().renewals;
  return count;
}

/// Returns the identity that TLS has proved on the only link to `other`; empty if there is none.
std::string identity_at(const Context& end, const Context& other) {
  LinkTable& links = ContextCore::of(end)->links();
  for (const auto& link : *links.all()) {
    const auto entry = links.entry_of(*link);
    if (entry && link->peer().context == other.id()) return entry->proofs.identity;
  }
  return {};
}

/// Two programs that reach each other by cables alone, and pipes on their link.
class SecureCables : public testing::Test {
 protected:
  void start(std::shared_ptr<ZenohPort> of_client, std::shared_ptr<ZenohPort> of_server) {
    client_.emplace("the client", std::move(of_client));
    server_.emplace("the server", std::move(of_server));
  }
  void start() { start(network_.open(1), network_.open(2)); }
  /// Ends both programs. Call it before another start().
  void end() {
    network_.alter({});
    out_.reset();
    in_.reset();
    listener_.reset();
    acceptor_.reset();
    client_.reset();
    server_.reset();
    lanes_.clear();
  }

  struct Laid {
    OwnedFd asker;
    OwnedFd answerer;
    CableTerms terms;
  };
  /// Lays both ends of a cable.
  [[nodiscard]] Laid lay(Lane lane) {
    CableTerms terms{.domain = "brain",
                     .peer = client_->context.id(),
                     .connection = random_nonce().value(),
                     .end = CableEnd::answerer,
                     .lane = lane};
    const Nonce128 half = random_nonce().value();
    std::ranges::copy(half, terms.key.begin());
    OwnedFd answerer = server_->cables->lay(terms).value();
    terms.peer = server_->context.id();
    terms.end = CableEnd::asker;
    OwnedFd asker = client_->cables->lay(terms).value();
    return {std::move(asker), std::move(answerer), std::move(terms)};
  }
  static std::unique_ptr<ByteStream> stream_on(OwnedFd fd) {
    return std::make_unique<SocketStream>(
        std::move(fd), StreamPeer{.user = std::nullopt, .kind = PathKind::routed, .why = "a test"});
  }
  [[nodiscard]] Result<Connected> connect_as(const Security& of_client, const Security& of_server) {
    const auto server = ContextCore::of(server_->context);
    acceptor_ = Acceptor::without_socket(server, of_server, handler_).value();
    const Carrier carrier{.name = "the other end",
                          .context = server_->context.id(),
                          .open = [&](Lane lane, Deadline) -> Result<std::unique_ptr<ByteStream>> {
                            Laid laid = lay(lane);
                            {
                              const std::lock_guard lock(mutex_);
                              lanes_.push_back(lane);
                              terms_.push_back(laid.terms);
                            }
                            acceptor_->admit(stream_on(std::move(laid.answerer)), std::nullopt);
                            return stream_on(std::move(laid.asker));
                          }};
    return connect(*ContextCore::of(client_->context), carrier, of_client, kPatience);
  }
  /// Makes a link, and a pipe on it: the address of the listener is dialled, and its peer has the
  /// link.
  void open(const Security& security) {
    const auto connected = connect_as(security, security);
    ASSERT_TRUE(succeeds(connected));
    EXPECT_EQ(connected->link->path().kind, PathKind::routed);
    auto listener = Listener::bind(server_->context, "127.0.0.1:0", {.security = security});
    ASSERT_TRUE(succeeds(listener));
    listener_ = *std::move(listener);
    // The client has the link first.
    ASSERT_TRUE(
        eventually([&] { return !ContextCore::of(server_->context)->links().all()->empty(); }));
    auto pipe =
        Pipe::connect(client_->context, listener_->address(), kPatience, {.security = security});
    ASSERT_TRUE(succeeds(pipe));
    ASSERT_EQ(pipe->path().kind, PathKind::routed);
    out_ = *std::move(pipe);
    in_ = listener_->accept(kPatience).value();
  }
  static void expect_moved(Pipe& from, Pipe& to, std::uint64_t seed, std::uint64_t bytes) {
    std::thread sender(
        [&] { EXPECT_TRUE(succeeds(from.send(patterned(seed, bytes), kPatience))); });
    const auto received = to.recv(kPatience);
    sender.join();
    ASSERT_TRUE(succeeds(received));
    EXPECT_TRUE(is_patterned(*received, seed, bytes));
  }
  void expect_moved_both_ways() {
    for (const std::uint64_t bytes : {kSmall, kLarge}) {
      expect_moved(*out_, *in_, bytes, bytes);
      expect_moved(*in_, *out_, bytes + 1, bytes);
    }
  }
  /// Messages of the control lane and of the bulk lane, until the session has changed often.
  void expect_moved_while_renewing(std::uint64_t renewals) {
    const auto is_done = [&] { return renewals_at(client_->context) >= renewals || HasFailure(); };
    // A renewal is due after every second round.
    for (std::uint64_t seed = 1; seed <= 1000 && !is_done(); ++seed) {
      expect_moved(*out_, *in_, seed, seed % 4 == 0 ? kLarge : kSmall);
      expect_moved(*in_, *out_, ~seed, seed % 4 == 2 ? kLarge : kSmall);
    }
    EXPECT_GE(renewals_at(client_->context), renewals);
    // One may be under way.
    EXPECT_GE(renewals_at(server_->context) + 1, renewals);
    EXPECT_EQ(identity_at(client_->context, server_->context), "key:fleet");
    EXPECT_EQ(identity_at(server_->context, client_->context), "key:fleet");
    EXPECT_EQ(lanes_.size(), 2u) << "the link is the first one";
    expect_moved_both_ways();
  }
  /// Expects that both ends hear that the link is lost, each with its code.
  void expect_lost(ErrorCode at_client, ErrorCode at_server) {
    EXPECT_TRUE(fails_with(in_->recv(kPatience), at_server));
    EXPECT_TRUE(fails_with(out_->recv(kPatience), at_client));
  }

  // Acts as a router: it knows the key of each cable, because it has passed it on.
  /// Returns the same frame of the asker with another payload or kind.
  [[nodiscard]] static Storage changed(const CableTerms& terms, const CableFrame& frame,
                                       CableFrameKind kind, Bytes payload) {
    CableFrameHeader header = frame.header;
    header.kind = kind;
    const std::size_t sealed = sizeof header + payload.size();
    Storage made = Storage::allocate(sealed + sizeof(CableTag)).value();
    std::memcpy(made.data(), &header, sizeof header);
    std::ranges::copy(payload, made.data() + sizeof header);
    const CableTag tag = CableSeal::make(terms.key)
                             .value()
                             .tag_of(CableEnd::asker, header.sequence, made.bytes().first(sealed))
                             .value();
    std::ranges::copy(tag, made.data() + sealed);
    return made;
  }
  [[nodiscard]] std::optional<CableTerms> terms_of(const Nonce128& connection) {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(terms_, connection, &CableTerms::connection);
    return found == terms_.end() ? std::nullopt : std::optional(*found);
  }
  /// Makes each later frame of the asker on a cable of this lane arrive as `alters` returns it. A
  /// frame without data is a sign of life.
  using Alter = std::function<Storage(const CableTerms&, const CableFrame&, const Storage&)>;
  void alter(Lane lane, Alter alters) {
    network_.alter(
        [this, lane, alters = std::move(alters), to_server = server_->context.id().to_string()](
            std::string_view key, const Storage& bytes) {
          const auto frame = read_cable_frame(bytes.bytes());
          if (!frame || key.find(to_server) == std::string_view::npos) return bytes;
          const auto terms = terms_of(frame->header.connection);
          return terms && terms->lane == lane ? alters(*terms, *frame, bytes) : bytes;
        });
  }
  static bool has_data(const CableFrame& frame) {
    return frame.header.kind == CableFrameKind::data;
  }
  /// Drops the second half of the next frame of data; the frame behind it is `kind`.
  void stop_in_a_record(Lane lane, CableFrameKind kind) {
    alter(lane, [kind, has_begun = false](const CableTerms& terms, const CableFrame& frame,
                                          const Storage& bytes) mutable {
      if (std::exchange(has_begun, has_begun || has_data(frame)))
        return changed(terms, frame, kind, {});
      if (!has_data(frame)) return bytes;
      return changed(terms, frame, CableFrameKind::data,
                     frame.payload.first(frame.payload.size() / 2));
    });
  }

  static constexpr std::uint64_t kSmall = 64;
  static constexpr std::uint64_t kLarge = 300'000;  // on the bulk lane, in several frames

  LiveZenoh network_;
  const std::shared_ptr<NoPipes> handler_ = std::make_shared<NoPipes>();
  std::mutex mutex_;
  std::vector<Lane> lanes_;        // in the order of opening
  std::vector<CableTerms> terms_;  // of the askers
  std::vector<std::byte> kept_;    // payload of a frame
  std::atomic<bool> exchanges_{false};
  MemberEventLog members_;
  std::optional<CabledProgram> client_;
  std::optional<CabledProgram> server_;
  std::shared_ptr<Acceptor> acceptor_;
  std::optional<Listener> listener_;
  std::optional<Pipe> out_;
  std::optional<Pipe> in_;
};

TEST_F(SecureCables, CarryAWholeLinkWithOneLane) {
  start();
  ASSERT_NO_FATAL_FAILURE(open(secure_by(fleet_key())));
  EXPECT_EQ(identity_at(client_->context, server_->context), "key:fleet");
  EXPECT_EQ(identity_at(server_->context, client_->context), "key:fleet");
  EXPECT_THAT(lanes_, testing::ElementsAre(Lane::control, Lane::bulk));
  expect_moved_both_ways();
}

TEST_F(SecureCables, RenewTheSessionWhileTheyCarryMessages) {
  start();
  ASSERT_NO_FATAL_FAILURE(open(secure_by(fleet_key_renewed_often())));
  expect_moved_while_renewing(10);
}

/// The same through a router of Zenoh, of which both programs are clients.
class SecureCablesOfZenoh : public SecureCables {
 protected:
  void SetUp() override {
    if (!zenoh_version()) GTEST_SKIP() << "this build has no Zenoh";
    const std::string place = "unixsock-stream/" + (dir_.path() / "router").string();
    router_ = open_zenoh({.mode = ZenohMode::router, .listen = {place}}, kPatience).value();
    const auto session = [&] {
      return open_zenoh({.mode = ZenohMode::client, .connect = {place}}, kPatience).value();
    };
    start(session(), session());
  }
  void TearDown() override { end(); }

 private:
  const ScratchDir dir_;
  std::shared_ptr<ZenohPort> router_;
};

TEST_F(SecureCablesOfZenoh, CarryALink) {
  ASSERT_NO_FATAL_FAILURE(open(secure_by(fleet_key())));
  EXPECT_EQ(identity_at(client_->context, server_->context), "key:fleet");
  expect_moved_both_ways();
}

TEST_F(SecureCablesOfZenoh, RenewTheSession) {
  ASSERT_NO_FATAL_FAILURE(open(secure_by(fleet_key_renewed_often())));
  expect_moved_while_renewing(3);
}

// All cables that a Context may have are laid: each has the smallest window, less than a record.
TEST_F(SecureCables, CarryOneWithChainsOfThreeInTheLeastWindows) {
  start();
  std::vector<Laid> others;
  for (std::size_t n = 1; n < kMaxCables / 2; ++n) {
    others.push_back(lay(Lane::control));
    others.push_back(lay(Lane::bulk));
  }
  ASSERT_NO_FATAL_FAILURE(open(secure_by(chain_of_three())));
  EXPECT_EQ(identity_at(server_->context, client_->context), "tendon://robot/7");
  expect_moved_both_ways();
  // The bodies are as long as the control lane may carry, both ways at once.
  const auto send_many = [](Pipe& pipe) {
    for (std::uint64_t n = 0; n < 20; ++n)
      EXPECT_TRUE(succeeds(pipe.send(patterned(n, kMaxInlineBytes - 256), kPatience)));
  };
  const auto receive_many = [](Pipe& pipe) {
    for (std::uint64_t n = 0; n < 20; ++n) {
      const auto received = pipe.recv(kPatience);
      ASSERT_TRUE(succeeds(received));
      EXPECT_TRUE(is_patterned(*received, n, kMaxInlineBytes - 256));
    }
  };
  std::vector<std::thread> threads;
  for (Pipe* pipe : {&*out_, &*in_}) {
    threads.emplace_back([=] { send_many(*pipe); });
    threads.emplace_back([=] { receive_many(*pipe); });
  }
  for (std::thread& thread : threads) thread.join();
}

// ---- what routers read

/// Keeps all payloads of each cable and direction, as a router could.
class CableCapture {
 public:
  explicit CableCapture(LiveZenoh& network) {
    network.lose([kept = kept_](std::string_view key, const Storage& bytes) {
      if (const auto frame = read_cable_frame(bytes.bytes())) {
        const std::lock_guard lock(kept->mutex);
        kept->payloads[std::string(key)] += as_text(frame->payload);
      }
      return false;
    });
  }
  [[nodiscard]] bool has(std::string_view text) const {
    const std::lock_guard lock(kept_->mutex);
    return std::ranges::any_of(kept_->payloads, [&](const auto& one) {
      return one.second.find(text) != std::string::npos;
    });
  }

 private:
  struct Kept {
    std::mutex mutex;
    std::map<std::string, std::string> payloads;
  };
  const std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();  // outlives the calls
};

class CapturedCables : public SecureCables {
 protected:
  /// Makes both ends send everything of interest: names, a small batch and a large one.
  void talk(const Security& security) {
    start();
    ASSERT_NO_FATAL_FAILURE(open(security));
    TensorDict batch;
    batch.set("text", "planted in a value");
    batch.set("planted_name", Tensor::of<std::uint8_t>({4}, {1, 2, 3, 4}));
    for (Pipe* pipe : {&*out_, &*in_}) {
      ASSERT_TRUE(succeeds(pipe->send(batch, kPatience)));
      Pipe& other = pipe == &*out_ ? *in_ : *out_;
      EXPECT_TRUE(succeeds(other.recv(kPatience)));
    }
    expect_moved_both_ways();
  }
  /// Returns the bytes that nobody may read, by their names.
  [[nodiscard]] std::map<std::string, std::string> secrets() const {
    const auto raw = [](const auto& bytes) { return std::string(as_text(Bytes(bytes))); };
    const TensorDict small = patterned(kSmall, kSmall);
    const TensorDict large = patterned(kLarge, kLarge);
    std::map<std::string, std::string> secrets{
        {"a value", "planted in a value"},
        {"the name of a tensor", "planted_name"},
        {"the client's name", "the client"},
        {"the server's name", "the server"},
        {"the boot id", raw(boot_id())},
        {"a context's id", raw(ContextCore::of(client_->context)->hello({}).context_id.bytes)},
        {"a small tensor", std::string(as_text(small["x"].bytes()))},
        {"the middle of a large tensor",
         std::string(as_text(large["x"].bytes().subspan(kLarge / 2, 64)))}};
    // A short name may occur by chance.
    if (host_name().size() >= 6) secrets.emplace("the host's name", host_name());
    return secrets;
  }
};

TEST_F(CapturedCables, AreReadByNobody) {
  const CableCapture capture(network_);
  ASSERT_NO_FATAL_FAILURE(talk(secure_by(fleet_key())));
  for (const auto& [name, secret] : secrets()) EXPECT_FALSE(capture.has(secret)) << name;
}

TEST_F(CapturedCables, InPlaintextAreReadByEachRouter) {
  const CableCapture capture(network_);
  ASSERT_NO_FATAL_FAILURE(talk({Profile::plaintext}));
  for (const auto& [name, secret] : secrets()) EXPECT_TRUE(capture.has(secret)) << name;
}

// ---- cables that stop, and routers that change what they pass on

TEST_F(SecureCables, AreLostWithTheirRouter) {
  start();
  ASSERT_NO_FATAL_FAILURE(open(secure_by(fleet_key())));
  expect_moved_both_ways();
  network_.stop_router();
  expect_lost(ErrorCode::peer_lost, ErrorCode::peer_lost);
}

TEST_F(SecureCables, CutInTheMiddleOfARecordAreLost) {
  for (const Lane lane : {Lane::control, Lane::bulk}) {
    start();
    ASSERT_NO_FATAL_FAILURE(open(secure_by(fleet_key())));
    stop_in_a_record(lane, CableFrameKind::cut);
    (void)out_->send(patterned(1, kLarge), kPatience);
    expect_lost(ErrorCode::peer_lost, ErrorCode::peer_lost);
    end();
  }
}

TEST_F(SecureCables, EndedInTheMiddleOfARecordAreLost) {
  start();
  ASSERT_NO_FATAL_FAILURE(open(secure_by(fleet_key())));
  stop_in_a_record(Lane::control, CableFrameKind::end);
  (void)out_->send(patterned(1, kSmall), kPatience);
  EXPECT_TRUE(fails_with(in_->recv(kPatience), ErrorCode::peer_lost));
}

// Before the listener has answered it may have no place: new cables are laid then.
TEST_F(SecureCables, CutInTheHandshakeAreLaidAgainOrLost) {
  for (int cut_at = 1; cut_at <= 4; ++cut_at) {
    start();
    alter(Lane::control, [cut_at, count = 0](const CableTerms& terms, const CableFrame& frame,
                                             const Storage& bytes) mutable {
      if (!has_data(frame) || ++count != cut_at) return bytes;
      return changed(terms, frame, CableFrameKind::cut, {});
    });
    const auto connected = connect_as(secure_by(fleet_key()), secure_by(fleet_key()));
    EXPECT_TRUE(connected || fails_with(connected, ErrorCode::peer_lost)) << cut_at;
    if (cut_at == 1) {
      EXPECT_TRUE(succeeds(connected));
      EXPECT_EQ(lanes_.size(), 3u);
    }
    end();
  }
}

TEST_F(SecureCables, EndInOrderWithTheirContext) {
  start();
  members_.watch(server_->context);
  ASSERT_NO_FATAL_FAILURE(open(secure_by(fleet_key())));
  const ContextId client = client_->context.id();
  ASSERT_TRUE(succeeds(out_->close(kPatience)));
  EXPECT_TRUE(fails_with(in_->recv(kPatience), ErrorCode::end_of_stream));
  out_.reset();
  { const Context gone = std::move(client_->context); }  // dropped before its cables
  EXPECT_TRUE(members_.wait_for(MemberEventKind::left, client));
  EXPECT_EQ(members_.count(MemberEventKind::lost), 0u);
}

TEST_F(SecureCables, RefuseARecordThatArrivesAgain) {
  start();
  ASSERT_NO_FATAL_FAILURE(open(secure_by(fleet_key())));
  alter(Lane::control,
        [this](const CableTerms& terms, const CableFrame& frame, const Storage& bytes) {
          if (!has_data(frame)) return bytes;
          if (exchanges_) return changed(terms, frame, CableFrameKind::data, kept_);
          kept_.assign(frame.payload.begin(), frame.payload.end());
          return bytes;
        });
  ASSERT_TRUE(succeeds(out_->send(patterned(1, kSmall), kPatience)));
  EXPECT_TRUE(succeeds(in_->recv(kPatience)));
  exchanges_ = true;
  (void)out_->send(patterned(2, kSmall), kPatience);
  EXPECT_TRUE(fails_with(in_->recv(kPatience), ErrorCode::protocol_violation));
}

TEST_F(SecureCables, RefuseARecordOfAnotherCable) {
  start();
  ASSERT_NO_FATAL_FAILURE(open(secure_by(fleet_key())));
  // Keeps more than a record, from its beginning.
  constexpr std::size_t kKeptBytes = 20'000;
  alter(Lane::bulk, [this](const CableTerms&, const CableFrame& frame, const Storage& bytes) {
    if (has_data(frame) && kept_.size() < kKeptBytes)
      kept_.insert(kept_.end(), frame.payload.begin(), frame.payload.end());
    return bytes;
  });
  ASSERT_TRUE(succeeds(out_->send(patterned(1, kLarge), kPatience)));
  EXPECT_TRUE(succeeds(in_->recv(kPatience)));
  alter(Lane::control,
        [this](const CableTerms& terms, const CableFrame& frame, const Storage& bytes) {
          if (!has_data(frame)) return bytes;
          return changed(terms, frame, CableFrameKind::data, Bytes(kept_).first(kKeptBytes));
        });
  (void)out_->send(patterned(2, kSmall), kPatience);
  EXPECT_TRUE(fails_with(in_->recv(kPatience), ErrorCode::protocol_violation));
}

// ---- the way of nodes

class SecureDetours : public testing::Test {
 protected:
  struct Side {
    Side(LiveZenoh& network, std::uint8_t host, const std::string& name, const Security& security)
        : context(Context::create({.name = name, .lease = kLongLease}).value()) {
      EXPECT_TRUE(succeeds(dialler->start()));
      detours =
          Detours::create(ContextCore::of(context), security, handler, dialler, network.open(host))
              .value();
      detours->let_in_cables();
    }
    Side(const Side&) = delete;
    Side& operator=(const Side&) = delete;
    ~Side() {
      detours->stop();
      dialler->stop();
    }
    Context context;
    const std::shared_ptr<NoPipes> handler = std::make_shared<NoPipes>();
    const std::shared_ptr<Dialler> dialler = std::make_shared<Dialler>();
    std::shared_ptr<Detours> detours;
  };
  [[nodiscard]] static Approach reach(Side& from, const Side& to) {
    const NodeAnnouncement asker{.domain = "brain",
                                 .name = "asker",
                                 .context = from.context.id(),
                                 .start = 1,
                                 .unix_on = std::nullopt,
                                 .addresses = {}};
    return from.detours->reach({.context = to.context.id(), .addresses = {}, .asker = asker},
                               kPatience);
  }

  LiveZenoh network_;
};

TEST_F(SecureDetours, LeadToASecureLink) {
  Side motor(network_, 1, "motor", secure_by(fleet_key()));
  Side vision(network_, 2, "vision", secure_by(fleet_key()));
  const Approach approach = reach(motor, vision);
  ASSERT_TRUE(succeeds(approach.link));
  EXPECT_EQ((*approach.link)->path().kind, PathKind::routed);
  EXPECT_EQ(identity_at(motor.context, vision.context), "key:fleet");
  EXPECT_TRUE(
      eventually([&] { return identity_at(vision.context, motor.context) == "key:fleet"; }));
}

TEST_F(SecureDetours, LeadNowhereWithAnotherKey) {
  Side motor(network_, 1, "motor", secure_by(fleet_key('b')));
  Side vision(network_, 2, "vision", secure_by(fleet_key('a')));
  const Approach approach = reach(motor, vision);
  EXPECT_TRUE(fails_with(approach.link, ErrorCode::authentication_failed));
  ASSERT_FALSE(approach.tried.empty());
  EXPECT_EQ(approach.tried.back().address, "routed");
}

TEST_F(SecureDetours, NeedCredentials) {
  const Context context = Context::create({}).value();
  EXPECT_TRUE(fails_with(Detours::create(ContextCore::of(context), {Profile::secure}, {},
                                         std::make_shared<Dialler>(), network_.open(1)),
                         ErrorCode::invalid_argument, "credentials"));
}

}  // namespace
}  // namespace tendon::test
