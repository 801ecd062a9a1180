# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, a C++ source with the pages of PAGES and the file COMPLETION as string literals.
file(GLOB pages "${PAGES}/TD-E*.md")
list(SORT pages)
set(text "#include \"cli/embedded.hpp\"\nnamespace tendon::cli {\n")
string(APPEND text "static constexpr ErrorPage kPages[] = {\n")
foreach(page IN LISTS pages)
  get_filename_component(id "${page}" NAME_WE)
  file(READ "${page}" content)
  string(APPEND text "{\"${id}\", R\"tendon_page(${content})tendon_page\"},\n")
endforeach()
string(APPEND text "};\nstd::span<const ErrorPage> error_pages() { return kPages; }\n")
file(READ "${COMPLETION}" content)
string(APPEND text "std::string_view bash_completion() {\n"
       "  return R\"tendon_page(${content})tendon_page\";\n}\n}  // namespace tendon::cli\n")
file(WRITE "${OUTPUT}" "${text}")
