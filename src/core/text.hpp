// SPDX-License-Identifier: Apache-2.0
// Makes words of peers and files safe for a terminal or a log; bytes as text.
#pragma once

#include <string>
#include <string_view>
#include <tendon/core/bytes.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// Bytes of the character at the front of `text`, which is not empty; 0 when it is not well-formed
/// UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF (Unicode 15, table 3-7).
[[nodiscard]] std::size_t character_bytes(std::string_view text);
/// The code point of the character at the front, whose `size` bytes character_bytes() has counted.
[[nodiscard]] char32_t code_point(std::string_view text, std::size_t size);
/// True if the character at the front, of `size` bytes, is U+0000 to U+001F or U+007F to U+009F.
/// The upper ones matter as much: a terminal takes U+009B for ESC [.
[[nodiscard]] bool is_control(std::string_view text, std::size_t size);
/// True for a control character, and for one that makes a reader see another text than there is:
/// ends of lines and paragraphs, changes of the direction of writing, invisible characters. Letters
/// of any script, spaces that show as spaces, combining marks and code points without a character
/// pass.
[[nodiscard]] bool is_hidden(std::string_view text, std::size_t size);

[[nodiscard]] bool is_utf8(std::string_view text);
/// True for well-formed UTF-8 without control characters: legal for a text on the wire.
[[nodiscard]] bool is_text(std::string_view text);
/// True for well-formed UTF-8 without hidden characters: safe to show to a person.
[[nodiscard]] bool is_clean(std::string_view text);
/// `text` with a space in place of each hidden character and of each byte that is not UTF-8. It
/// cannot move a cursor, begin a line, nor pass for another text. It has whole characters of at
/// most `max_bytes` bytes.
[[nodiscard]] TENDON_API std::string cleaned(std::string_view text,
                                             std::size_t max_bytes = std::string_view::npos);
/// `byte` as \xNN.
[[nodiscard]] std::string escaped_byte(char byte);
/// `text` in the form for messages: each byte that is not UTF-8 as \xNN, all else unchanged; whole
/// characters and whole escapes of at most `max_bytes` bytes.
[[nodiscard]] TENDON_API std::string escaped(std::string_view text, std::size_t max_bytes);
/// The shortest decimal that reads back as `number`, with a point in every locale.
[[nodiscard]] std::string number_text(double number);
/// The system's words for an errno value, in English in every locale: "Connection refused".
[[nodiscard]] std::string errno_text(int errno_value);
/// Lower-case hexadecimal, two digits a byte.
[[nodiscard]] TENDON_API std::string to_hex(Bytes bytes);
/// Reads two hexadecimal digits of either case for each of `bytes`, in a time that does not depend
/// on them: they may be a key. False, and `bytes` unspecified: `text` is not just that.
[[nodiscard]] bool from_hex(std::string_view text, MutableBytes bytes);

}  // namespace tendon::v0::detail
