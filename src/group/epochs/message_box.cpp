// SPDX-License-Identifier: Apache-2.0
#include "group/epochs/message_box.hpp"

#include <functional>

namespace tendon::v0::detail {
namespace {

bool fits(const MessageBox::Receive& receive, const MessageBox::Entry& entry) {
  return (!receive.place || *receive.place == entry.place) &&
         (!receive.tag || *receive.tag == entry.inbound.envelope.tag);
}

}  // namespace

void MessageBox::put(GroupPlace place, InboundMessage&& inbound) {
  {
    const Lock lock(mutex_);
    if (!closed_) {
      const Entry& entry = entries_.emplace_back(Entry{place, ++arrived_, std::move(inbound)});
      const auto first = std::ranges::find_if(receives_, [&entry](const Receive* receive) {
        return receive->match == 0 && fits(*receive, entry);
      });
      if (first != receives_.end()) (*first)->match = entry.number;
      return;
    }
  }
  inbound.credit();
}

void MessageBox::put_back(Entry&& entry) {
  const Lock lock(mutex_);
  if (closed_) return entry.inbound.credit();
  const auto behind = std::ranges::upper_bound(entries_, entry.number, std::less(), &Entry::number);
  entries_.insert(behind, std::move(entry));
  match_anew();
}

void MessageBox::close() {
  std::deque<Entry> left;
  {
    const Lock lock(mutex_);
    closed_ = true;
    left = std::exchange(entries_, {});
    match_anew();
  }
  for (const Entry& entry : left) entry.inbound.credit();
}

void MessageBox::drop(GroupPlace place) {
  const Lock lock(mutex_);
  std::erase_if(entries_, [place](const Entry& entry) { return entry.place == place; });
  match_anew();
}

void MessageBox::post(Receive& receive) {
  const Lock lock(mutex_);
  match(receive);
  receives_.push_back(&receive);
}

bool MessageBox::withdraw(Receive& receive) {
  const Lock lock(mutex_);
  std::erase(receives_, &receive);
  if (receive.match.exchange(0) == 0) return false;
  match_anew();
  return true;
}

void MessageBox::match(Receive& receive) {
  const auto entry = std::ranges::find_if(entries_, [&](const Entry& each) TENDON_REQUIRES(mutex_) {
    return fits(receive, each) && is_free(each);
  });
  receive.match = entry == entries_.end() ? 0 : entry->number;
}

bool MessageBox::is_free(const Entry& entry) const {
  return std::ranges::none_of(
      receives_, [&entry](const Receive* receive) { return receive->match == entry.number; });
}

void MessageBox::match_anew() {
  for (Receive* receive : receives_) receive->match = 0;
  for (Receive* receive : receives_) match(*receive);
}

}  // namespace tendon::v0::detail
