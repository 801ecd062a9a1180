// SPDX-License-Identifier: Apache-2.0
#include "fabric/discovery/runtime_home.hpp"

#include <algorithm>
#include <utility>

#include "session/machine.hpp"
#include "session/socket_names.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "node.directory";
// The name of its target at the Dialler.
constexpr const char* kMove = "runtime directory";

}  // namespace

Result<std::shared_ptr<RuntimeHome>> RuntimeHome::create(
    const std::shared_ptr<ContextCore>& context, const std::shared_ptr<Dialler>& dialler,
    std::string asked) {
  TENDON_TRY(directory, runtime_directory(asked));
  TENDON_TRY(door, DirectoryDoor::open(directory));
  TENDON_TRY(opened, open_directory(directory));
  auto home = std::make_shared<RuntimeHome>(context, dialler, std::move(asked), std::move(door));
  const Lock lock(home->mutex_);
  home->directory_ = std::move(directory);
  home->opened_ = std::move(opened);
  return home;
}

Result<void> RuntimeHome::serve(Profile profile, const std::weak_ptr<OpenHandler>& handler) {
  TENDON_TRY(acceptor,
             Acceptor::bind(context_, "unix:" + socket_in(directory()), {profile}, handler));
  acceptor_ = std::move(acceptor);
  watch_ = std::make_shared<DirectoryWatch>(context_, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->look();
  });
  follow();
  return {};
}

std::string RuntimeHome::socket_in(const std::string& directory) const {
  return directory + '/' + context_->id().to_string() + std::string(kNodeSuffix);
}

std::string RuntimeHome::directory() const {
  const Lock lock(mutex_);
  return directory_;
}

std::vector<std::shared_ptr<StarSeat>> RuntimeHome::seats() const {
  std::vector<std::shared_ptr<StarSeat>> seats;
  const Lock lock(mutex_);
  for (const auto& weak : seats_)
    if (auto seat = weak.lock()) seats.push_back(std::move(seat));
  return seats;
}

void RuntimeHome::add(const std::shared_ptr<StarSeat>& seat) {
  {
    const Lock lock(mutex_);
    std::erase_if(seats_, [](const auto& known) { return known.expired(); });
    seats_.push_back(seat);
  }
  follow();
}

void RuntimeHome::add(std::weak_ptr<DirectoryListener> listener) {
  const Lock lock(mutex_);
  std::erase_if(listeners_, [](const auto& known) { return known.expired(); });
  listeners_.push_back(std::move(listener));
}

void RuntimeHome::follow() {
  const std::string directory = this->directory();
  std::vector<std::string> files;
  if (!directory.empty()) {
    files.push_back(socket_in(directory));
    for (const auto& seat : seats()) files.push_back(seat->path_in(directory));
  }
  watch_->follow(directory, files);
}

bool RuntimeHome::stands_in(const std::string& directory) const {
  return directory == directory_ && file_id(directory) == file_id(opened_.get()) &&
         acceptor_->serves_at(socket_in(directory)) &&
         std::ranges::all_of(seats_, [&](const auto& weak) {
           const auto seat = weak.lock();
           return seat == nullptr || seat->is_served_in(directory);
         });
}

void RuntimeHome::look() {
  if (context_->unusable()) return;
  const auto right = runtime_directory(asked_);
  {
    const Lock lock(mutex_);
    if (state_ == State::moving || state_ == State::stopped) return;
    const bool is_served = state_ == State::served;
    if (right ? is_served && stands_in(*right) : !is_served) return;
    state_ = State::moving;
  }
  dialler_->want({.key = kMove,
                  .peer = kMove,
                  .attempt =
                      [weak = weak_from_this()](const Dialler::Dial&) {
                        if (const auto self = weak.lock()) self->move();
                        return Dialler::Outcome::done;
                      },
                  .whence = Dialler::Whence::user});
}

void RuntimeHome::move() {
  const auto right = runtime_directory(asked_);
  DirectoryChange change;
  Reason why = Reason::a_name_is_gone;
  {
    const Lock lock(mutex_);
    change.from = directory_;
    if (right && (*right != directory_ || file_id(*right) != file_id(opened_.get())))
      why = Reason::another_directory;
  }
  const bool stood = !change.from.empty() && file_id(change.from).has_value();
  const auto served = right ? serve_in(*right, why) : Result<void>(right.error());
  if (served) {
    change.to = *right;
    change.reason = change.from.empty()        ? "there is a directory again"
                    : change.to == change.from ? "it was removed or replaced, and is made anew"
                    : stood                    ? "this one comes before it"
                                               : "it is gone, and this one is the next";
  } else {
    leave();
    change.reason = served.error().detail;
  }
  dialler_->drop(kMove);  // before a look may want the next one
  bool is_news = !change.from.empty() || served;
  {
    const Lock lock(mutex_);
    if (state_ == State::stopped) return;
    state_ = served ? State::served : State::nowhere;
    directory_ = change.to;
    is_news |= change.reason != refusal_;
    refusal_ = served ? std::string() : change.reason;
  }
  follow();
  if (!is_news) return;
  const bool is_anew = why == Reason::another_directory && !change.to.empty();
  if (change.from != change.to || is_anew) return tell(change);
  context_->log(LogLevel::warn, kWhere,
                served ? "a name of this process in '" + change.to + "' was gone: it is there again"
                       : "this process is served nowhere: " + change.reason);
}

// Serves the door first: sessions enter by it when the seats leave their old place.
Result<void> RuntimeHome::serve_in(const std::string& directory, Reason why) {
  const bool all_anew = why == Reason::another_directory;
  if (all_anew) {
    TENDON_TRY(opened, open_directory(directory));
    auto leads = door_.lead_to(directory);
    if (!leads && leads.error().code != ErrorCode::not_supported) return leads;
    if (!leads) context_->log(LogLevel::warn, kWhere, leads.error().detail);
    const Lock lock(mutex_);
    opened_ = std::move(opened);
  }
  const std::string socket = socket_in(directory);
  if (all_anew || !acceptor_->serves_at(socket)) TENDON_CHECK(acceptor_->serve_at(socket));
  for (const auto& seat : seats())
    if (all_anew || !seat->is_served_in(directory)) TENDON_CHECK(seat->serve_in(directory));
  return {};
}

void RuntimeHome::leave() {
  {
    const Lock lock(mutex_);
    opened_.reset();  // any later directory is another one
  }
  if (const auto left = door_.lead_nowhere(); !left)
    context_->log(LogLevel::error, kWhere, left.error().message());
  acceptor_->leave();
  for (const auto& seat : seats()) seat->leave();
}

void RuntimeHome::tell(const DirectoryChange& change) {
  std::vector<std::shared_ptr<DirectoryListener>> listeners;
  {
    const Lock lock(mutex_);
    for (const auto& weak : listeners_)
      if (auto listener = weak.lock()) listeners.push_back(std::move(listener));
  }
  for (const auto& listener : listeners) listener->on_directory_change(change);
}

void RuntimeHome::stop() {
  {
    const Lock lock(mutex_);
    state_ = State::stopped;
  }
  watch_->stop();
  dialler_->drop_all(kMove);
  acceptor_->close();
}

}  // namespace tendon::v0::detail
