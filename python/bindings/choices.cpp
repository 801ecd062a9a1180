// SPDX-License-Identifier: Apache-2.0
#include "choices.hpp"

#include <initializer_list>
#include <string_view>

#include "errors.hpp"

namespace tendon::python {
namespace {

template <class Enum>
struct Choice {
  std::string_view word;
  Enum value;
};

template <class Enum>
Enum choose(const char* what, const std::string& word,
            std::initializer_list<Choice<Enum>> choices) {
  std::string legal;
  for (const Choice<Enum>& choice : choices) {
    if (choice.word == word) return choice.value;
    legal += (legal.empty() ? "'" : ", '") + std::string(choice.word) + "'";
  }
  raise_value_error(std::string(what) + " is '" + word + "'; legal are " + legal);
}

}  // namespace

Transport transport_from(const std::string& word) {
  return choose<Transport>(
      "transport", word,
      {{"automatic", Transport::automatic}, {"shm", Transport::shm}, {"tcp", Transport::tcp}});
}

WaitPolicy wait_policy_from(const std::string& word) {
  return choose<WaitPolicy>("wait_policy", word,
                            {{"latency", WaitPolicy::latency},
                             {"balanced", WaitPolicy::balanced},
                             {"blocking", WaitPolicy::blocking}});
}

Profile profile_from(const std::string& word) {
  return choose<Profile>("profile", word,
                         {{"local", Profile::local}, {"plaintext", Profile::plaintext}});
}

DiscoveryNeed discovery_need_from(const std::string& word) {
  return choose<DiscoveryNeed>(
      "discovery", word,
      {{"required", DiscoveryNeed::required}, {"background", DiscoveryNeed::background}});
}

MapMode map_mode_from(const std::string& word) {
  return choose<MapMode>(
      "mode", word,
      {{"c", MapMode::copy_on_write}, {"r", MapMode::read_only}, {"r+", MapMode::read_write}});
}

LogLevel log_level_from(const std::string& word) {
  return choose<LogLevel>("level", word,
                          {{"error", LogLevel::error},
                           {"warn", LogLevel::warn},
                           {"info", LogLevel::info},
                           {"debug", LogLevel::debug}});
}

RecvMode recv_mode_from(const std::string& word) {
  return choose<RecvMode>("mode", word,
                          {{"view_or_copy", RecvMode::view_or_copy},
                           {"view_only", RecvMode::view_only},
                           {"copy", RecvMode::copy}});
}

bool wants_copy_from(const std::string& word) {
  return choose<bool>("mode", word, {{kViewOrCopy, false}, {"copy", true}});
}

Minority minority_from(const std::string& word) {
  return choose<Minority>("minority", word,
                          {{"refuse", Minority::refuse}, {"allow", Minority::allow}});
}

Fence fence_from(const std::string& word) {
  return choose<Fence>("fence", word, {{"none", Fence::none}, {"kill", Fence::kill}});
}

Overflow overflow_from(const std::string& word) {
  return choose<Overflow>("overflow", word,
                          {{"drop_oldest", Overflow::drop_oldest}, {"block", Overflow::block}});
}

Priority priority_from(const std::string& word) {
  return choose<Priority>("priority", word,
                          {{"normal", Priority::normal}, {"control", Priority::control}});
}

PlainPeers plain_peers_from(const std::string& word) {
  return choose<PlainPeers>(
      "plain", word,
      {{"auto", PlainPeers::automatic}, {"off", PlainPeers::off}, {"bare", PlainPeers::bare}});
}

PlainContent plain_content_from(const std::string& word) {
  return choose<PlainContent>("plain_content", word,
                              {{"tensors", PlainContent::tensors},
                               {"bytes", PlainContent::bytes},
                               {"both", PlainContent::both}});
}

}  // namespace tendon::python
