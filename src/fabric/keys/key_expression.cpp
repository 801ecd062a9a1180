// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <tendon/fabric/key_expression.hpp>
#include <utility>

#include "core/text.hpp"
#include "tensor/text.hpp"

namespace tendon::v0 {
namespace {

using detail::quote_text;

constexpr std::string_view kAnyChunk = "*";
constexpr std::string_view kAnyChunks = "**";
constexpr std::string_view kAnyBytes = "$*";

using ChunkSpan = std::span<const std::string_view>;

// The chunks of a valid expression, without allocation.
class Chunks {
 public:
  explicit Chunks(std::string_view text) {
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find('/', begin), text.size());
      chunks_[count_++] = text.substr(begin, end - begin);
      begin = end + 1;
    }
  }
  [[nodiscard]] ChunkSpan span() const& { return {chunks_.data(), count_}; }
  ChunkSpan span() const&& = delete;

 private:
  std::array<std::string_view, kMaxKeyChunks> chunks_;
  std::size_t count_ = 0;
};

// True if the chunk `text`, in which "$*" is a piece of text like any other, has the form of
// `pattern`. The leftmost place of each piece is the best one: it leaves the most to those behind
// it.
bool has_form(std::string_view pattern, std::string_view text) {
  std::size_t wild = pattern.find(kAnyBytes);
  if (wild == std::string_view::npos) return pattern == text;
  if (!text.starts_with(pattern.substr(0, wild))) return false;
  text.remove_prefix(wild);
  for (;;) {
    pattern.remove_prefix(wild + kAnyBytes.size());
    wild = pattern.find(kAnyBytes);
    if (wild == std::string_view::npos) return text.ends_with(pattern);
    const std::size_t found = text.find(pattern.substr(0, wild));
    if (found == std::string_view::npos) return false;
    text.remove_prefix(found + wild);
  }
}

// For the texts of two keys before their first wildcards, or behind their last. The longer text
// must begin, or end, with the shorter one: the wildcard next to that one takes the rest.
bool begin_alike(std::string_view a, std::string_view b) {
  return a.starts_with(b.substr(0, a.size()));
}
bool end_alike(std::string_view a, std::string_view b) {
  return a.size() < b.size() ? b.ends_with(a) : a.ends_with(b);
}

// True if one chunk, not a verbatim one, has both forms. With a wildcard in both it exists: the
// longer beginning, all text between wildcards in `a`, then all of `b`, the longer end.
bool chunks_intersect(std::string_view a, std::string_view b) {
  if (a == kAnyChunk || b == kAnyChunk) return true;
  const std::size_t in_a = a.find(kAnyBytes);
  const std::size_t in_b = b.find(kAnyBytes);
  if (in_a == std::string_view::npos) return has_form(b, a);
  if (in_b == std::string_view::npos) return has_form(a, b);
  return begin_alike(a.substr(0, in_a), b.substr(0, in_b)) &&
         end_alike(a.substr(a.rfind(kAnyBytes) + kAnyBytes.size()),
                   b.substr(b.rfind(kAnyBytes) + kAnyBytes.size()));
}

// True if every chunk of the form `b` has the form `a`.
bool chunk_includes(std::string_view a, std::string_view b) {
  if (b == kAnyChunks) return false;
  return a == kAnyChunk || (b != kAnyChunk && has_form(a, b));
}

using ChunkRule = bool (*)(std::string_view, std::string_view);

// True if the chunks of `text` match those of `pattern`, whose "**" take any number of chunks. None
// is verbatim. As for bytes the leftmost place of each run between two "**" is the best one, so a
// mismatch moves only the last run: |pattern| x |text| comparisons, whatever they are.
bool follow(ChunkSpan pattern, ChunkSpan text, ChunkRule rule) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::optional<std::size_t> run;  // the beginning of the last run in `pattern`
  std::size_t run_at = 0;          // and in `text`
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == kAnyChunks) {
      run = ++p;
      run_at = t;
    } else if (p < pattern.size() && rule(pattern[p], text[t])) {
      ++p;
      ++t;
    } else if (run) {
      p = *run;
      t = ++run_at;
    } else {
      return false;
    }
  }
  return std::all_of(pattern.begin() + static_cast<std::ptrdiff_t>(p), pattern.end(),
                     [](std::string_view chunk) { return chunk == kAnyChunks; });
}

bool runs_intersect(ChunkSpan a, ChunkSpan b) {
  const auto first_a = std::find(a.begin(), a.end(), kAnyChunks);
  const auto first_b = std::find(b.begin(), b.end(), kAnyChunks);
  if (first_b == b.end()) return follow(a, b, chunks_intersect);
  if (first_a == a.end()) return follow(b, a, chunks_intersect);
  // "**" in both: as for bytes, only the beginnings and the ends can contradict each other.
  const auto begin = static_cast<std::size_t>(std::min(first_a - a.begin(), first_b - b.begin()));
  const auto behind = [](ChunkSpan chunks) {
    return static_cast<std::size_t>(std::find(chunks.rbegin(), chunks.rend(), kAnyChunks) -
                                    chunks.rbegin());
  };
  const std::size_t end = std::min(behind(a), behind(b));
  return std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(begin), b.begin(),
                    chunks_intersect) &&
         std::equal(a.rbegin(), a.rbegin() + static_cast<std::ptrdiff_t>(end), b.rbegin(),
                    chunks_intersect);
}

bool run_includes(ChunkSpan a, ChunkSpan b) { return follow(a, b, chunk_includes); }

bool is_verbatim(std::string_view chunk) { return chunk.starts_with('@'); }

// Verbatim chunks can only match each other, in their order: each pair of runs between them is
// judged separately.
bool between_verbatim(ChunkSpan a, ChunkSpan b, bool (*judge)(ChunkSpan, ChunkSpan)) {
  for (;;) {
    const auto in_a = std::find_if(a.begin(), a.end(), is_verbatim);
    const auto in_b = std::find_if(b.begin(), b.end(), is_verbatim);
    if ((in_a == a.end()) != (in_b == b.end())) return false;
    const auto before_a = static_cast<std::size_t>(in_a - a.begin());
    const auto before_b = static_cast<std::size_t>(in_b - b.begin());
    if (!judge(a.first(before_a), b.first(before_b))) return false;
    if (in_a == a.end()) return true;
    if (*in_a != *in_b) return false;
    a = a.subspan(before_a + 1);
    b = b.subspan(before_b + 1);
  }
}

Error bad_key(std::string_view text, std::size_t at, std::string_view why) {
  return Error{
      ErrorCode::invalid_argument, "fabric.key_expression",
      "the key " + quote_text(text) + ", at byte " + std::to_string(at) + ": " + std::string(why)};
}

Result<void> check_length(std::string_view text) {
  if (text.size() > kMaxKeyBytes) {
    return Error{ErrorCode::limit_exceeded, "fabric.key_expression",
                 "the key " + quote_text(text) + " has " + std::to_string(text.size()) +
                     " bytes; legal: 1-" + std::to_string(kMaxKeyBytes)};
  }
  const auto slashes = static_cast<std::size_t>(std::count(text.begin(), text.end(), '/'));
  if (slashes >= kMaxKeyChunks) {
    return Error{ErrorCode::limit_exceeded, "fabric.key_expression",
                 "the key " + quote_text(text) + " has " + std::to_string(slashes + 1) +
                     " chunks; legal: 1-" + std::to_string(kMaxKeyChunks)};
  }
  return {};
}

// The fault of a chunk, and the byte at which it is.
struct Fault {
  std::size_t at = 0;
  std::string_view why;
};

std::optional<Fault> fault_of(std::string_view chunk) {
  if (chunk.empty()) return Fault{0, "a chunk is empty (a '/' at an end, or two side by side)"};
  if (chunk == kAnyChunk || chunk == kAnyChunks) return std::nullopt;
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    switch (chunk[i]) {
      case '#':
      case '?':
        return Fault{i, "'#' and '?' are in no key"};
      case '$':
        if (!chunk.substr(i).starts_with(kAnyBytes)) {
          return Fault{i, "'$' is only legal in the wildcard '$*'"};
        }
        ++i;
        break;
      case '*':
        return Fault{i, "'*' and '**' are whole chunks; inside a chunk the wildcard is '$*'"};
      default:
        break;
    }
  }
  return std::nullopt;
}

Result<void> check_chunks(std::string_view text) {
  if (text.empty()) return bad_key(text, 0, "a key has at least one chunk");
  if (!detail::is_utf8(text)) return bad_key(text, 0, "it is not UTF-8");
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('/', begin), text.size());
    if (const auto fault = fault_of(text.substr(begin, end - begin))) {
      return bad_key(text, begin + fault->at, fault->why);
    }
    begin = end + 1;
  }
  return {};
}

// `chunk`, which is valid, with one "$*" for several side by side; "*" if it is nothing else.
std::string canonical_chunk(std::string_view chunk) {
  std::string out;
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    const bool repeated =
        chunk.substr(i).starts_with(kAnyBytes) && std::string_view(out).ends_with(kAnyBytes);
    if (repeated) {
      ++i;
    } else {
      out += chunk[i];
    }
  }
  return out == kAnyBytes ? std::string(kAnyChunk) : out;
}

// The canonical text of a valid one. "**" is put behind the "*" beside it.
std::string canonical(std::string_view text) {
  std::string out;
  const auto append = [&out](std::string_view chunk) {
    if (!out.empty()) out += '/';
    out += chunk;
  };
  bool any_chunks = false;
  const Chunks chunks(text);
  for (const std::string_view chunk : chunks.span()) {
    const std::string one = canonical_chunk(chunk);
    if (one == kAnyChunks) {
      any_chunks = true;
      continue;
    }
    if (any_chunks && one != kAnyChunk) {
      append(kAnyChunks);
      any_chunks = false;
    }
    append(one);
  }
  if (any_chunks) append(kAnyChunks);
  return out;
}

}  // namespace

Result<KeyExpression> KeyExpression::parse(std::string_view text) {
  TENDON_TRY(key, canonize(text));
  if (key.text_ == text) return key;
  const auto differs = std::mismatch(text.begin(), text.end(), key.text_.begin(), key.text_.end());
  return bad_key(text, static_cast<std::size_t>(differs.first - text.begin()),
                 "it is not canonical; write " + quote_text(key.text_));
}

Result<KeyExpression> KeyExpression::canonize(std::string_view text) {
  TENDON_CHECK(check_length(text));
  TENDON_CHECK(check_chunks(text));
  return KeyExpression(canonical(text));
}

bool KeyExpression::intersects(const KeyExpression& other) const noexcept {
  const Chunks ours(text_);
  const Chunks theirs(other.text_);
  return between_verbatim(ours.span(), theirs.span(), runs_intersect);
}

bool KeyExpression::includes(const KeyExpression& other) const noexcept {
  const Chunks ours(text_);
  const Chunks theirs(other.text_);
  return between_verbatim(ours.span(), theirs.span(), run_includes);
}

}  // namespace tendon::v0
