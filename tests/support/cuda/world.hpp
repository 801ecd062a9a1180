// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cuda/driver_types.hpp"
#include "support/cuda/memory.hpp"
#include "support/cuda/settings.hpp"
#include "support/cuda/streams.hpp"

namespace tendon::cuda_double {

/// The functions of the driver, as numbers.
enum class Function : std::size_t {
#define TENDON_CUDA_FUNCTION(field, exported, since, parameters) field,
#include "cuda/driver_functions.def"
#undef TENDON_CUDA_FUNCTION
  count
};
inline constexpr auto kFunctionCount = static_cast<std::size_t>(Function::count);

struct Event {
  Point point;
  std::shared_ptr<Capture> capture;
};

/// The numbers of launched blocks and threads, by x, y and z.
struct Grid {
  std::array<unsigned, 3> blocks{};
  std::array<unsigned, 3> threads{};
};

struct Kernel {
  std::function<void(void* const*, const Grid&)> run;
  std::vector<std::size_t> parameter_bytes;
};
/// The kernel of Tendon itself.
Kernel gather_kernel();

/// Everything that the double knows, under one lock. It is never destroyed, because threads of
/// streams use it to the end of the process.
struct World {
  explicit World(World* one_before);

  World* const before;  ///< threads that end late may still use it

  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<pid_t> process{0};  ///< the process that called cuInit; 0: none did
  std::atomic<bool> is_deinitialised{false};
  std::array<std::atomic<std::uint64_t>, kFunctionCount> calls{};

  Settings settings;
  std::mt19937_64 hesitation;
  std::size_t running = 0;                   ///< streams that are doing their work
  std::deque<Context> contexts;              ///< one for each device
  std::vector<std::size_t> bytes_given_out;  ///< of each device
  AddressBook addresses;
  std::map<void*, std::shared_ptr<Event>> events;
  std::vector<std::shared_ptr<Capture>> captures;
  std::map<void*, std::string> modules;    ///< PTX by module
  std::map<void*, std::string> functions;  ///< names by function
  std::map<std::string, Kernel> kernels;
  std::uint64_t last_number = 0;  ///< of places in queues, captures and handles
};

World& world();
/// Replaces the world; the streams of the old one end.
void make_world_anew();

/// The contexts that the calling thread has made current, innermost last.
std::vector<Context*>& current_contexts();
CaptureMode& capture_mode();

}  // namespace tendon::cuda_double
