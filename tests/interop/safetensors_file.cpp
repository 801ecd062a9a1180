// SPDX-License-Identifier: Apache-2.0
// safetensors_file write FILE    writes a file with every type that the format and Tendon share
// safetensors_file check FILE    reads one that another writer made of the same tensors
//
// check_safetensors.py is the other half, and has the same tables: they agree by name, shape and
// byte, or the test fails.
#include <algorithm>
#include <cstdio>
#include <string>
#include <tendon/tensor/dtype.hpp>
#include <tendon/tensor/safetensors.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <vector>

namespace {

using namespace tendon;

struct Sample {
  std::string path;
  DType dtype;
  Shape shape;
};

std::vector<Sample> samples() {
  std::vector<Sample> samples;
  for (const DTypeInfo& row : dtype_table())
    if (!row.safetensors_name.empty())
      samples.push_back({"all/" + std::string(row.safetensors_name), row.dtype, {2, 3}});
  samples.push_back({"deep/er/and/deeper", DType::i16, {5}});
  samples.push_back({"with.dot", DType::u8, {3}});
  samples.push_back({"Zo\u00eb \u20ac", DType::f32, {1}});
  samples.push_back({"quote\"back\\slash", DType::u8, {1}});
  samples.push_back({"scalar", DType::f64, {}});
  samples.push_back({"empty/first", DType::f32, {0, 4}});
  samples.push_back({"empty/last", DType::i64, {4, 0}});
  return samples;
}

/// Differs from byte to byte and from tensor to tensor; 0 and 1 for booleans.
std::byte pattern(const Sample& sample, std::size_t at) {
  const std::size_t value = at * 7 + sample.path.size() * 31;
  return static_cast<std::byte>(sample.dtype == DType::boolean ? value % 2 : value % 256);
}

int write(const char* file) {
  TensorDict dict;
  for (const Sample& sample : samples()) {
    Tensor tensor = Tensor::zeros(sample.dtype, sample.shape).value();
    const MutableBytes bytes = tensor.mutable_bytes();
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern(sample, i);
    dict.set(sample.path, std::move(tensor));
  }
  const auto saved =
      save_safetensors(file, dict, {.metadata = {{"format", "pt"}, {"author", "Zo\u00eb"}}});
  if (!saved) std::fprintf(stderr, "%s\n", saved.error().message().c_str());
  return saved ? 0 : 1;
}

int check(const char* file) {
  const auto opened = SafetensorsFile::open(file);
  if (!opened) {
    std::fprintf(stderr, "%s\n", opened.error().message().c_str());
    return 1;
  }
  int faults = 0;
  const auto fault = [&](const std::string& what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    ++faults;
  };
  const TensorDict& dict = opened->tensors();
  const std::vector<Sample> wanted = samples();
  if (dict.leaf_count() != wanted.size())
    fault(std::to_string(dict.leaf_count()) + " tensors of " + std::to_string(wanted.size()));
  for (const Sample& sample : wanted) {
    // Without our own structure in the metadata the file is flat, and '.' is part of a name.
    std::string name = sample.path;
    std::ranges::replace(name, '/', '.');
    const auto found = dict.find(name);
    if (!found) {
      fault("no tensor " + sample.path);
      continue;
    }
    if (found->dtype() != sample.dtype) fault("another type: " + sample.path);
    if (found->shape() != sample.shape) fault("another shape: " + sample.path);
    const Bytes bytes = found->bytes();
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (bytes[i] != pattern(sample, i)) {
        fault("other bytes: " + sample.path);
        break;
      }
  }
  const SafetensorsMetadata& metadata = opened->header().metadata;
  for (const std::pair<std::string, std::string> entry :
       {std::pair{"format", "pt"}, std::pair{"author", "Zo\u00eb"}}) {
    bool there = false;
    for (const auto& found : metadata) there |= found == entry;
    if (!there) fault("no metadata " + entry.first);
  }
  return faults == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc == 3 ? argv[1] : "";
  if (verb == "write") return write(argv[2]);
  if (verb == "check") return check(argv[2]);
  std::fprintf(stderr, "usage: safetensors_file write|check FILE\n");
  return 2;
}
