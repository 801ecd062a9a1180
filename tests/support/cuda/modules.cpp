// SPDX-License-Identifier: Apache-2.0
// Modules are texts in PTX. Their entries run the functions that a test sets for their names, or
// the kernel of Tendon from here.
#include <cstring>

#include "support/cuda/functions.hpp"
#include "support/cuda/world.hpp"

namespace tendon::cuda_double {
namespace {

void* new_handle(World& all) {
  // Is no address of a program: the value is only looked up.
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(++all.last_number << 4));
}

bool has_entry(const std::string& text, const std::string& name) {
  return text.find(".entry " + name + "(") != std::string::npos ||
         text.find(".entry " + name + " ") != std::string::npos;
}

/// The parameters of a launch, copied because the program may change them after the call.
struct Parameters {
  std::vector<std::vector<std::byte>> values;

  Parameters(const std::vector<std::size_t>& sizes, void* const* given) {
    for (std::size_t at = 0; at < sizes.size(); ++at) {
      values.emplace_back(sizes[at]);
      std::memcpy(values.back().data(), given[at], sizes[at]);
    }
  }
  void run(const Kernel& kernel, const Grid& grid) {
    std::vector<void*> addresses;
    for (auto& value : values) addresses.push_back(value.data());
    kernel.run(addresses.data(), grid);
  }
};

}  // namespace

Status module_load(ModuleHandle* handle, const void* image) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  if (current_contexts().empty()) return Status::invalid_context;
  const char* const text = static_cast<const char*>(image);
  if (std::strstr(text, ".version") == nullptr) return Status::invalid_image;
  void* const mine = new_handle(all);
  all.modules[mine] = text;
  *handle = static_cast<ModuleHandle>(mine);
  return Status::success;
}

Status module_get_function(FunctionHandle* handle, ModuleHandle module_handle, const char* name) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  const auto found = all.modules.find(module_handle);
  if (found == all.modules.end()) return Status::invalid_handle;
  if (!has_entry(found->second, name)) return Status::not_found;
  void* const mine = new_handle(all);
  all.functions[mine] = name;
  *handle = static_cast<FunctionHandle>(mine);
  return Status::success;
}

Status launch_kernel(FunctionHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                     unsigned block_x, unsigned block_y, unsigned block_z, unsigned,
                     StreamHandle handle, void** parameters, void** extra) {
  World& all = world();
  WorldLock lock(all.mutex);
  Status status = Status::success;
  const auto stream = stream_of(all, handle, status);
  if (stream == nullptr) return status;
  const auto named = all.functions.find(function);
  if (named == all.functions.end()) return Status::invalid_handle;
  for (const unsigned size : {grid_x, grid_y, grid_z, block_x, block_y, block_z})
    if (size == 0) return Status::invalid_value;
  const auto kernel = all.kernels.find(named->second);
  if (kernel == all.kernels.end() || extra != nullptr) return Status::not_supported;
  const Grid grid{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}};
  Parameters copied(kernel->second.parameter_bytes, parameters);
  return enqueue(lock, stream,
                 [kernel = kernel->second, grid, copied]() mutable { copied.run(kernel, grid); });
}

}  // namespace tendon::cuda_double
