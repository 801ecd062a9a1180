// SPDX-License-Identifier: Apache-2.0
#include "support/live_zenoh.hpp"

#include <map>
#include <string>
#include <utility>
#include <variant>

#include "fabric/zenoh/zenoh_callbacks.hpp"

namespace tendon::test {

using namespace tendon::detail;
using std::chrono::milliseconds;

template <class F>
auto LiveZenoh::with(F what) {
  const std::lock_guard lock(mutex_);
  has_work_ = true;
  touched_.notify_all();
  return what(network_);
}

class LiveZenoh::Question final : public ZenohQuestion {
 public:
  Question(LiveZenoh& live, std::unique_ptr<ZenohQuestion> question)
      : live_(live), question_(std::move(question)) {}
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;
  ~Question() override {
    live_.with([this](ZenohNetwork&) { question_.reset(); });
  }
  [[nodiscard]] const ZenohMessage& asked() const noexcept override { return question_->asked(); }
  void answer(ZenohMessage message) override {
    live_.with([&](ZenohNetwork&) { question_->answer(std::move(message)); });
  }

 private:
  LiveZenoh& live_;
  std::unique_ptr<ZenohQuestion> question_;
};

class LiveZenoh::Standing final : public ZenohPort::Declared {
 public:
  Standing(LiveZenoh& live, std::shared_ptr<ZenohCallbacks> callbacks,
           ZenohCallbacks::Number number)
      : live_(live), callbacks_(std::move(callbacks)), number_(number) {}
  Standing(const Standing&) = delete;
  Standing& operator=(const Standing&) = delete;
  ~Standing() override {
    if (number_ != 0) callbacks_->remove(number_);
    live_.with([this](ZenohNetwork&) { declared.reset(); });
  }

  ZenohPort::Handle declared;

 private:
  LiveZenoh& live_;
  const std::shared_ptr<ZenohCallbacks> callbacks_;
  const ZenohCallbacks::Number number_;
};

class LiveZenoh::Publisher final : public ZenohPublisher {
 public:
  Publisher(LiveZenoh& live, std::shared_ptr<ZenohCallbacks> callbacks,
            ZenohCallbacks::Number number)
      : live_(live), callbacks_(std::move(callbacks)), number_(number) {}
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;
  ~Publisher() override {
    callbacks_->remove(number_);
    live_.with([this](ZenohNetwork&) { declared.reset(); });
  }
  [[nodiscard]] Result<void> put(Storage payload, Storage attachment,
                                 std::string_view encoding) override {
    return live_.with([&](ZenohNetwork&) {
      return declared->put(std::move(payload), std::move(attachment), encoding);
    });
  }
  [[nodiscard]] Matching matching() const override {
    return live_.with([&](ZenohNetwork&) { return declared->matching(); });
  }

  std::unique_ptr<ZenohPublisher> declared;

 private:
  LiveZenoh& live_;
  const std::shared_ptr<ZenohCallbacks> callbacks_;
  const ZenohCallbacks::Number number_;
};

class LiveZenoh::Session final : public ZenohPort {
 public:
  Session(LiveZenoh& live, std::unique_ptr<ZenohPort> port, std::uint8_t host)
      : live_(live), port_(std::move(port)), host_(host) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() override {
    callbacks_->close();
    live_.with([this](ZenohNetwork&) { port_.reset(); });
  }

  [[nodiscard]] Result<Handle> token(const KeyExpression& key) override {
    std::string text = key.text();
    constexpr std::string_view kUnix = "/unix=";
    constexpr std::size_t kHashDigits = 16;
    if (const std::size_t found = text.find(kUnix); found != std::string::npos)
      text.replace(found + kUnix.size(), kHashDigits, kHashDigits, static_cast<char>('0' + host_));
    live_.with([&](ZenohNetwork&) { as_announced_.insert_or_assign(text, key.text()); });
    return declare(0, [&] { return port_->token(KeyExpression::parse(text).value()); });
  }
  [[nodiscard]] Result<Handle> watch(const KeyExpression& pattern, OnToken on_token) override {
    const Number number = callbacks_->add([on_token](Event event) {
      const auto& token = std::get<ZenohCallbacks::Token>(event);
      on_token(token.change, token.key);
    });
    return declare(number, [&] {
      return port_->watch(pattern, [this, number](TokenChange change, std::string_view key) {
        callbacks_->post(number, ZenohCallbacks::Token{change, told_key(key)});
      });
    });
  }
  [[nodiscard]] Result<Handle> get(const KeyExpression& pattern, milliseconds timeout, OnKey on_key,
                                   OnEnd on_end) override {
    const Number number = callbacks_->add([on_key, on_end](Event event) {
      if (const auto* const ending = std::get_if<Ending>(&event)) return on_end(*ending);
      on_key(std::get<ZenohCallbacks::Token>(event).key);
    });
    return declare(number, [&] {
      return port_->get(
          pattern, timeout,
          [this, number](std::string_view key) {
            callbacks_->post(number, ZenohCallbacks::Token{TokenChange::came, told_key(key)});
          },
          [this, number](Ending ending) { callbacks_->post(number, ending); });
    });
  }
  [[nodiscard]] Result<void> put(ZenohMessage message) override {
    return live_.with([&](ZenohNetwork&) { return port_->put(std::move(message)); });
  }
  [[nodiscard]] Result<void> put_patiently(const KeyExpression& key, Storage payload) override {
    return live_.with([&](ZenohNetwork&) -> Result<void> {
      if (live_.loses_ && live_.loses_(key.text(), payload)) return {};
      if (live_.alters_) payload = live_.alters_(key.text(), payload);
      return port_->put_patiently(key, std::move(payload));
    });
  }
  [[nodiscard]] Result<std::unique_ptr<ZenohPublisher>> publisher(const KeyExpression& key,
                                                                  Audience audience,
                                                                  OnMatching on_matching) override {
    const Number number =
        callbacks_->add([on_matching](Event event) { on_matching(std::get<Matching>(event)); });
    auto publisher = std::make_unique<Publisher>(live_, callbacks_, number);
    auto declared = live_.with([&](ZenohNetwork&) {
      return port_->publisher(
          key, audience, [this, number](Matching matching) { callbacks_->post(number, matching); });
    });
    if (!declared) return std::move(declared).error();
    publisher->declared = *std::move(declared);
    return std::unique_ptr<ZenohPublisher>(std::move(publisher));
  }
  [[nodiscard]] Result<Handle> subscribe(const KeyExpression& pattern, OnMessage on_message,
                                         OnDropped on_dropped) override {
    const Number number =
        callbacks_->add([on_message](Event event) { on_message(std::get<ZenohMessage>(event)); });
    return declare(number, [&] {
      return port_->subscribe(
          pattern,
          [this, number](const ZenohMessage& message) { callbacks_->post(number, message); },
          on_dropped);
    });
  }
  [[nodiscard]] Result<Handle> query(ZenohMessage question, milliseconds timeout,
                                     OnMessage on_answer, OnEnd on_end) override {
    const Number number = callbacks_->add([on_answer, on_end](Event event) {
      if (const auto* const ending = std::get_if<Ending>(&event)) return on_end(*ending);
      on_answer(std::get<ZenohMessage>(event));
    });
    return declare(number, [&] {
      return port_->query(
          std::move(question), timeout,
          [this, number](const ZenohMessage& message) { callbacks_->post(number, message); },
          [this, number](Ending ending) { callbacks_->post(number, ending); });
    });
  }
  [[nodiscard]] Result<Handle> answer(const KeyExpression& key, OnQuestion on_question) override {
    const Number number = callbacks_->add([on_question](Event event) {
      on_question(std::get<std::unique_ptr<ZenohQuestion>>(std::move(event)));
    });
    return declare(number, [&] {
      return port_->answer(key, [this, number](std::unique_ptr<ZenohQuestion> question) {
        callbacks_->post(number, std::unique_ptr<ZenohQuestion>(
                                     std::make_unique<Question>(live_, std::move(question))));
      });
    });
  }
  [[nodiscard]] Result<Handle> on_state(OnState on_state) override {
    const Number number =
        callbacks_->add([on_state](Event event) { on_state(std::get<SessionState>(event)); });
    return declare(number, [&] {
      return port_->on_state(
          [this, number](SessionState state) { callbacks_->post(number, state); });
    });
  }
  [[nodiscard]] SessionState state() const override {
    return live_.with([&](ZenohNetwork&) { return port_->state(); });
  }

 private:
  using Number = ZenohCallbacks::Number;
  using Event = ZenohCallbacks::Event;

  template <class F>
  [[nodiscard]] Result<Handle> declare(Number number, F what) {
    auto standing = std::make_unique<Standing>(live_, callbacks_, number);
    auto declared = live_.with([&](ZenohNetwork&) { return what(); });
    if (!declared) return std::move(declared).error();
    standing->declared = *std::move(declared);
    return Handle(std::move(standing));
  }

  /// Returns the key as this session announced it, if it is one of its own tokens. Called in
  /// callbacks of the network.
  [[nodiscard]] std::string told_key(std::string_view key) const {
    const auto own = as_announced_.find(key);
    return own == as_announced_.end() ? std::string(key) : own->second;
  }

  LiveZenoh& live_;
  std::unique_ptr<ZenohPort> port_;
  const std::uint8_t host_;
  std::map<std::string, std::string, std::less<>> as_announced_;  // by the key that the network has
  const std::shared_ptr<ZenohCallbacks> callbacks_ = ZenohCallbacks::start().value();
};

LiveZenoh::LiveZenoh() : thread_([this] { run(); }) {}

LiveZenoh::~LiveZenoh() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  touched_.notify_all();
  thread_.join();
}

void LiveZenoh::run() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    touched_.wait(lock, [this] { return has_work_ || ending_; });
    has_work_ = false;
    network_.run_until_quiet();
  }
}

std::unique_ptr<ZenohPort> LiveZenoh::open(std::uint8_t host) {
  return with([&](ZenohNetwork& network) {
    return std::make_unique<Session>(*this, network.open(), host);
  });
}

void LiveZenoh::stop_router() {
  with([](ZenohNetwork& network) { network.stop_router(); });
}

void LiveZenoh::heal() {
  with([](ZenohNetwork& network) { network.heal(); });
}

void LiveZenoh::lose(std::function<bool(std::string_view, const Storage&)> loses) {
  with([&](ZenohNetwork&) { loses_ = std::move(loses); });
}

void LiveZenoh::alter(std::function<Storage(std::string_view, const Storage&)> alters) {
  with([&](ZenohNetwork&) { alters_ = std::move(alters); });
}

}  // namespace tendon::test
