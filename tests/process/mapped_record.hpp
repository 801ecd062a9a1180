// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <type_traits>

#include "core/fd.hpp"

namespace tendon::test {

/// A T of atomics in a file that processes map: a process's writes to it survive its SIGKILL.
template <class T>
class MappedRecord {
  static_assert(std::is_standard_layout_v<T>);

 public:
  /// Makes the file, full of zeros, where there is none.
  explicit MappedRecord(const std::filesystem::path& path) {
    const detail::OwnedFd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!file || ftruncate(file.get(), sizeof(T)) != 0) throw std::runtime_error(path);
    void* const place = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (place == MAP_FAILED) throw std::runtime_error("mmap " + path.string());
    record_ = static_cast<T*>(place);
  }
  MappedRecord(const MappedRecord&) = delete;
  MappedRecord& operator=(const MappedRecord&) = delete;
  ~MappedRecord() { munmap(record_, sizeof(T)); }

  T& operator*() const { return *record_; }
  T* operator->() const { return record_; }

 private:
  T* record_;
};

/// The samples that a process published, by its own count.
struct PublisherRecord {
  /// One publisher, from its declaration to its end.
  struct Life {
    std::atomic<std::uint64_t> started;   ///< the sample of the last call of publish()
    std::atomic<std::uint64_t> returned;  ///< the last sample whose publish() returned
    std::atomic<std::uint32_t> closed;    ///< whether close() was called
  };
  static constexpr std::uint32_t kMostLives = 4096;

  /// Whether a reader may be told this as the total of published samples.
  [[nodiscard]] bool allows(std::uint32_t entity, std::uint64_t count) const {
    const Life& life = lives[entity];
    return count == life.returned || count == life.started;
  }

  std::atomic<std::uint64_t> incarnation;
  std::array<Life, kMostLives> lives;  ///< indexed by the entity
};

/// The totals of a reader.
struct ReaderRecord {
  std::atomic<std::uint64_t> received;
  std::atomic<std::uint64_t> missing;  ///< samples in gaps
  std::atomic<std::uint64_t> holes;    ///< samples left out because of max_hz or newest_only
  std::atomic<std::uint64_t> came;
  std::atomic<std::uint64_t> ended;
  std::atomic<std::uint64_t> returned;  ///< streams that continued after an end
  std::atomic<std::uint64_t> wrong;
};

}  // namespace tendon::test
