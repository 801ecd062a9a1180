# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, a C++ source with the pages of DOCS/errors and the file COMPLETION as string
# literals, and the rows of DOCS/limits.md whose constant is in a public header.
file(GLOB pages "${DOCS}/errors/TD-E*.md")
list(SORT pages)
set(text "#include \"cli/embedded.hpp\"\nnamespace tendon::cli {\n")
string(APPEND text "static constexpr ErrorPage kPages[] = {\n")
foreach(page IN LISTS pages)
  get_filename_component(id "${page}" NAME_WE)
  file(READ "${page}" content)
  string(APPEND text "{\"${id}\", R\"tendon_page(${content})tendon_page\"},\n")
endforeach()
string(APPEND text "};\nstd::span<const ErrorPage> error_pages() { return kPages; }\n")
file(READ "${DOCS}/limits.md" content)
string(REGEX REPLACE "\\[([^]\n]*)\\]\\([^)\n]*\\)" "\\1" content "${content}")  # the text of a link
string(APPEND text "static constexpr Limit kLimits[] = {\n")
while("${content}" MATCHES
      "\n\\| `(k[A-Za-z0-9]+)` \\| ([^|\n]*) \\| ([^|\n]*) \\| `tendon/[^\n]*(.*)")
  string(APPEND text "{\"${CMAKE_MATCH_1}\", whole(${CMAKE_MATCH_1}), \"${CMAKE_MATCH_2}\", "
         "R\"tendon_page(${CMAKE_MATCH_3})tendon_page\"},\n")
  set(content "${CMAKE_MATCH_4}")
endwhile()
string(APPEND text "};\nstd::span<const Limit> limits() { return kLimits; }\n")
file(READ "${COMPLETION}" content)
string(APPEND text "std::string_view bash_completion() {\n"
       "  return R\"tendon_page(${content})tendon_page\";\n}\n}  // namespace tendon::cli\n")
file(WRITE "${OUTPUT}" "${text}")
