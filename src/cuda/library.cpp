// SPDX-License-Identifier: Apache-2.0
#include "cuda/library.hpp"

#include <dlfcn.h>

#include "core/c_locale.hpp"

namespace tendon::v0::detail::cuda {

Result<Library> Library::open(const std::string& name) {
  const CLocale english;
  void* const opened = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened != nullptr) return Library(opened);
  const char* const why = dlerror();
  return Error{ErrorCode::not_supported, "cuda.load", why != nullptr ? why : "no reason is given"};
}

bool Library::is_open(const std::string& name) noexcept {
  void* const opened = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (opened == nullptr) return false;
  (void)dlclose(opened);  // it counts its openers
  return true;
}

void* Library::symbol(const char* name) const noexcept { return dlsym(opened_, name); }

}  // namespace tendon::v0::detail::cuda
