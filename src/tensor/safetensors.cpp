// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <tendon/tensor/atomic_file.hpp>
#include <tendon/tensor/packed.hpp>
#include <tendon/tensor/safetensors.hpp>

#include "tensor/append_tensor.hpp"
#include "tensor/mapped_file.hpp"
#include "tensor/on_cpu.hpp"
#include "tensor/safetensors_tree.hpp"
#include "tensor/text.hpp"
#include "tensor/tree.hpp"
#include "tensor/untrusted.hpp"

namespace tendon::v0 {
namespace {

using detail::in_file;
using detail::quote_text;

Error error(ErrorCode code, std::string detail) {
  return Error{code, "tensor.safetensors", std::move(detail)};
}

// The place of each leaf in a file: by rising offset, without gaps.
struct Plan {
  std::vector<std::byte> header;
  std::vector<std::uint32_t> order;
};

// The plan for a given header, if that describes exactly these tensors.
Result<Plan> plan_from_header(const TensorDict& dict, Bytes bytes) {
  TENDON_TRY(header, SafetensorsHeader::parse(bytes));
  if (header.size_bytes != bytes.size()) {
    return error(ErrorCode::corrupt_data, "a header of " + std::to_string(header.size_bytes) +
                                              " bytes in " + std::to_string(bytes.size()));
  }
  // No bytes are read: the storage only has the right size.
  const Storage nothing(nullptr, nullptr, header.size_bytes + header.data_bytes, Access::read_only);
  TENDON_TRY(described, detail::build_tensors(header, nothing));
  if (*described.dict.schema() != *dict.schema()) {
    return error(ErrorCode::schema_mismatch,
                 "the header does not describe these tensors: " +
                     describe_difference(*described.dict.schema(), *dict.schema()));
  }
  const Value* const theirs = described.dict.values().get();
  const Value* const ours = dict.values().get();
  if ((theirs == nullptr) != (ours == nullptr) || (theirs != nullptr && *theirs != *ours))
    return error(ErrorCode::schema_mismatch, "the header holds other non-tensor data");
  if (described.entry_of_path.size() != header.entries.size() ||
      dict.leaf_count() != header.entries.size()) {
    return error(ErrorCode::schema_mismatch, "the header uses one tensor for several entries");
  }
  Plan plan{{bytes.begin(), bytes.end()}, std::vector<std::uint32_t>(dict.leaf_count())};
  std::vector<std::size_t> entry_of_leaf(dict.leaf_count());
  for (std::size_t i = 0; i < entry_of_leaf.size(); ++i)
    entry_of_leaf[i] = described.entry_of_path.at(dict.leaf_path(i));
  std::iota(plan.order.begin(), plan.order.end(), 0u);
  std::stable_sort(plan.order.begin(), plan.order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return header.entries[entry_of_leaf[a]].begin_bytes <
           header.entries[entry_of_leaf[b]].begin_bytes;
  });
  return plan;
}

Result<Plan> make_plan(const TensorDict& dict, const SaveOptions& options) {
  if (!options.header.empty()) return plan_from_header(dict, options.header);
  TENDON_TRY(header, make_safetensors_header(dict, options));
  return Plan{std::move(header), dict.schema()->layout(Layout::safetensors).order};
}

Result<void> write_leaves(AtomicFile& file, const TensorDict& dict, const Plan& plan) {
  std::vector<Bytes> pieces{plan.header};
  for (const std::uint32_t leaf : plan.order) {
    const LeafView view = leaf_view(dict, leaf);
    if (view.size_bytes == 0) continue;
    if (view.contiguous) {
      pieces.emplace_back(view.data, view.size_bytes);
      continue;
    }
    TENDON_CHECK(file.write(pieces));
    pieces.clear();
    TENDON_CHECK(detail::append_tensor(file, dict.leaf(leaf)));
  }
  return file.write(pieces);
}

Result<void> check_size(const SafetensorsHeader& header, std::uint64_t size_bytes) {
  if (size_bytes - header.size_bytes == header.data_bytes) return {};
  return error(ErrorCode::corrupt_data,
               "the header describes " + std::to_string(header.data_bytes) +
                   " bytes of tensors, and " + std::to_string(size_bytes - header.size_bytes) +
                   " follow it");
}

}  // namespace

SafetensorsFile::SafetensorsFile(Storage storage, SafetensorsHeader header, TensorDict tensors)
    : storage_(std::move(storage)), header_(std::move(header)), tensors_(std::move(tensors)) {}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  TENDON_TRY(opened, detail::OpenFile::open(path, "tensor.safetensors"));
  const std::uint64_t size_bytes = opened.size_bytes();
  // The header is read, not mapped: it stays as it was checked, even if the file is written
  // meanwhile.
  TENDON_TRY(front, opened.read_front(std::min<std::uint64_t>(size_bytes, 8)));
  auto header_bytes = SafetensorsHeader::measure(front);
  if (!header_bytes) return in_file(std::move(header_bytes).error(), path);
  if (*header_bytes > size_bytes) {
    return in_file(
        error(ErrorCode::corrupt_data, "the header has " + std::to_string(*header_bytes) +
                                           " bytes, the whole file " + std::to_string(size_bytes)),
        path);
  }
  TENDON_TRY(text, opened.read_front(*header_bytes));
  auto header = SafetensorsHeader::parse(text);
  if (!header) return in_file(std::move(header).error(), path);
  if (auto whole = check_size(*header, size_bytes); !whole)
    return in_file(std::move(whole).error(), path);

  // Writable: frameworks that write in place change pages of this process only.
  TENDON_TRY(storage, opened.map());
  auto built = detail::build_tensors(*header, storage);
  if (!built) return in_file(std::move(built).error(), path);
  return SafetensorsFile(std::move(storage), *std::move(header), std::move(built->dict));
}

Result<SafetensorsFile> SafetensorsFile::parse(Storage storage) {
  TENDON_CHECK(
      detail::check_on_cpu(storage.device(), "the memory of the file", "tensor.safetensors"));
  TENDON_TRY(header, SafetensorsHeader::parse(storage.bytes()));
  TENDON_CHECK(check_size(header, storage.size_bytes()));
  TENDON_TRY(built, detail::build_tensors(header, storage));
  return SafetensorsFile(std::move(storage), std::move(header), std::move(built.dict));
}

SafetensorsMetadata SafetensorsFile::metadata() const {
  SafetensorsMetadata others = header_.metadata;
  std::erase_if(others, [](const auto& entry) { return entry.first == detail::kStructureKey; });
  return others;
}

Result<TensorDict> load_safetensors(const std::filesystem::path& path) {
  TENDON_TRY(file, SafetensorsFile::open(path));
  return std::move(file).tensors();
}

Result<TensorDict> parse_safetensors(Storage storage) {
  TENDON_TRY(file, SafetensorsFile::parse(std::move(storage)));
  return std::move(file).tensors();
}

Result<void> save_safetensors(const std::filesystem::path& path, const TensorDict& dict,
                              const SaveOptions& options) {
  TENDON_CHECK(detail::check_on_cpu(dict, "tensor.safetensors"));
  TENDON_TRY(plan, make_plan(dict, options));
  TENDON_TRY(file, AtomicFile::create(path));
  TENDON_CHECK(file.check_size(plan.header.size() + dict.size_bytes()));
  TENDON_CHECK(write_leaves(file, dict, plan));
  return file.commit();
}

}  // namespace tendon::v0
