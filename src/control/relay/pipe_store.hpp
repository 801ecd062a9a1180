// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tendon/core/mutex.hpp>
#include <tendon/group/rendezvous.hpp>
#include <utility>

#include "control/relay/worker_pipe.hpp"
#include "core/text.hpp"

namespace tendon::v0::detail {

/// The store in which the world group's members find rank 0: the controller keeps the text
/// (StoreBook).
///
/// Owns:    received values.
/// Threads: safe everywhere.
/// Errors:  timeout; peer_lost after end().
/// Blocks:  get(): until the deadline.
/// Cost:    a word each way.
class PipeStore final : public RendezvousStore {
 public:
  explicit PipeStore(std::shared_ptr<WorkerPipe> pipe) : pipe_(std::move(pipe)) {}

  Result<void> set(std::string_view key, std::string_view value, Deadline deadline) override {
    (void)deadline;
    v1::Word word;
    word.mutable_store_set()->set_key(std::string(key));
    word.mutable_store_set()->set_value(std::string(value));
    pipe_->send(word);
    return {};
  }

  Result<std::string> get(std::string_view key, Deadline deadline) override {
    const std::string name(key);
    {
      const Lock lock(mutex_);
      // An earlier value may have changed: rank 0 may be another process now.
      values_.erase(name);
    }
    v1::Word word;
    word.mutable_store_get()->set_key(name);
    pipe_->send(word);
    const Lock lock(mutex_);
    while (true) {
      if (const auto found = values_.find(name); found != values_.end()) return found->second;
      if (ended_) {
        return Error{ErrorCode::peer_lost, "control.store", "the controller is gone"};
      }
      if (deadline.has_passed()) {
        return Error{ErrorCode::timeout, "control.store",
                     "no worker has said '" + escaped(name, 128) + "' to the controller"};
      }
      (void)changed_.wait_until(mutex_, deadline);
    }
  }

  // Called by the service thread
  void came(const v1::StoreValue& value) {
    {
      const Lock lock(mutex_);
      if (values_.size() < kMaxStoreKeys) values_[value.key()] = value.value();
    }
    changed_.notify_all();
  }
  void end() {
    {
      const Lock lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
  }

 private:
  const std::shared_ptr<WorkerPipe> pipe_;
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, std::string> values_ TENDON_GUARDED_BY(mutex_);
  bool ended_ TENDON_GUARDED_BY(mutex_) = false;
};

}  // namespace tendon::v0::detail
