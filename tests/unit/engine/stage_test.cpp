// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the last stage, compared with plain loops without a cache.
#include "worker/stage.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "support/expect.hpp"
#include "support/scratch_dir.hpp"

namespace engine {
namespace {

using tendon::ErrorCode;
using tendon::Tensor;
using tendon::test::fails_with;
using tendon::test::succeeds;
using Rows = std::vector<std::vector<double>>;

constexpr LlamaConfig kTiny{.layers = 3,
                            .width = 24,
                            .heads = 6,
                            .kv_heads = 3,
                            .ffn_width = 40,
                            .vocabulary = 30,
                            .context = 64,
                            .rope_base = 1e4,
                            .rms_eps = 1e-5};
constexpr tendon::LayerRange kLast{.first = 1, .last = 3};
const std::string kConfigText =
    R"({"layers":3,"width":24,"heads":6,"kv_heads":3,"ffn_width":40,"vocabulary":30,)"
    R"("context":64,"rope_base":10000.0,"rms_eps":1e-05})";

/// A model with random weights, its file, and its results in plain loops.
class Plain {
 public:
  Plain() {
    for (int layer = 0; layer < 3; ++layer) {
      const std::string at = "layers." + std::to_string(layer);
      add(at + ".input_layernorm", 1, 24, 1);
      add(at + ".post_attention_layernorm", 1, 24, 1);
      add(at + ".self_attn.q_proj", 24, 24);
      add(at + ".self_attn.k_proj", 12, 24);
      add(at + ".self_attn.v_proj", 12, 24);
      add(at + ".self_attn.o_proj", 24, 24);
      add(at + ".mlp.gate_proj", 40, 24);
      add(at + ".mlp.up_proj", 40, 24);
      add(at + ".mlp.down_proj", 24, 40);
    }
    add("norm", 1, 24, 1);
    add("embed_tokens", 30, 24);
  }

  /// The logits after each of the rows, which are positions 0, 1, ... of a sequence.
  Rows logits(Rows rows) {
    for (const std::string layer : {"layers.1", "layers.2"}) {
      const Rows in = normed(rows, layer + ".input_layernorm");
      add_to(rows, times(attended(times(in, layer + ".self_attn.q_proj"),
                                  times(in, layer + ".self_attn.k_proj"),
                                  times(in, layer + ".self_attn.v_proj")),
                         layer + ".self_attn.o_proj"));
      const Rows between = normed(rows, layer + ".post_attention_layernorm");
      Rows inner = times(between, layer + ".mlp.gate_proj");
      const Rows up = times(between, layer + ".mlp.up_proj");
      for (std::size_t row = 0; row < inner.size(); ++row) {
        for (std::size_t at = 0; at < 40; ++at) {
          inner[row][at] *= up[row][at] / (1 + std::exp(-inner[row][at]));
        }
      }
      add_to(rows, times(inner, layer + ".mlp.down_proj"));
    }
    return times(normed(rows, "norm"), "embed_tokens");
  }

  Rows random_rows(std::size_t count) {
    Rows rows(count, std::vector<double>(24));
    for (auto& row : rows) {
      for (double& each : row) each = normal_(random_);
    }
    return rows;
  }

  /// Opens the stage in C++ on a file of these weights.
  template <class Scalar>
  tendon::Result<std::unique_ptr<Stage>> open(std::uint32_t blocks) {
    tendon::TensorDict dict;
    for (const auto& [name, rows] : weights_) {
      std::vector<Scalar> all;
      for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
      const auto columns = static_cast<std::int64_t>(rows[0].size());
      const auto count = static_cast<std::int64_t>(rows.size());
      dict.set(
          "model." + name + ".weight",
          Tensor::of<Scalar>(count == 1 ? tendon::Shape{columns} : tendon::Shape{count, columns},
                             std::span<const Scalar>(all)));
    }
    const auto path = folder_.path() / "tiny.safetensors";
    TENDON_CHECK(tendon::save_safetensors(path, dict, {.metadata = {{"config", kConfigText}}}));
    TENDON_TRY(file, tendon::SafetensorsFile::open(path));
    TENDON_TRY(config, LlamaConfig::of(file.header()));
    return Stage::open(std::move(file), config, kLast, blocks);
  }

  void forget(const std::string& name) { weights_.erase(name); }
  void cut(const std::string& name) { weights_.at(name).pop_back(); }

 private:
  void add(const std::string& name, std::size_t rows, std::size_t columns, double mean = 0) {
    Rows made(rows, std::vector<double>(columns));
    for (auto& row : made) {
      for (double& each : row) each = mean + normal_(random_) * 0.3;
    }
    weights_.emplace(name, std::move(made));
  }
  [[nodiscard]] Rows times(const Rows& rows, const std::string& name) const {
    Rows out;
    for (const auto& row : rows) {
      auto& made = out.emplace_back();
      for (const auto& weights : weights_.at(name)) {
        double sum = 0;
        for (std::size_t at = 0; at < row.size(); ++at) sum += row[at] * weights[at];
        made.push_back(sum);
      }
    }
    return out;
  }
  [[nodiscard]] Rows normed(Rows rows, const std::string& name) const {
    for (auto& row : rows) {
      double squares = 0;
      for (const double each : row) squares += each * each;
      for (std::size_t at = 0; at < row.size(); ++at) {
        row[at] *= weights_.at(name)[0][at] / std::sqrt(squares / 24 + 1e-5);
      }
    }
    return rows;
  }
  static void add_to(Rows& rows, const Rows& more) {
    for (std::size_t row = 0; row < rows.size(); ++row) {
      for (std::size_t at = 0; at < rows[row].size(); ++at) rows[row][at] += more[row][at];
    }
  }
  /// Element `at` of a head whose pairs are rotated by its position.
  static double turned(const std::vector<double>& row, std::size_t head, std::size_t at,
                       std::size_t position) {
    const double angle =
        static_cast<double>(position) * std::pow(1e4, -static_cast<double>(at % 2) / 2);
    const double its = row[head * 4 + at];
    const double other = row[head * 4 + (at + 2) % 4];
    return its * std::cos(angle) + (at < 2 ? -other : other) * std::sin(angle);
  }
  static Rows attended(const Rows& queries, const Rows& keys, const Rows& values) {
    Rows out(queries.size(), std::vector<double>(24));
    for (std::size_t row = 0; row < queries.size(); ++row) {
      for (std::size_t head = 0; head < 6; ++head) {
        double total = 0;
        for (std::size_t key = 0; key <= row; ++key) {
          double score = 0;
          for (std::size_t at = 0; at < 4; ++at) {
            score += turned(queries[row], head, at, row) * turned(keys[key], head / 2, at, key);
          }
          const double weight = std::exp(score / 2);
          total += weight;
          for (std::size_t at = 0; at < 4; ++at) {
            out[row][head * 4 + at] += weight * values[key][head / 2 * 4 + at];
          }
        }
        for (std::size_t at = 0; at < 4; ++at) out[row][head * 4 + at] /= total;
      }
    }
    return out;
  }

  std::mt19937 random_{5};
  std::normal_distribution<double> normal_;
  std::map<std::string, Rows> weights_;
  tendon::test::ScratchDir folder_;
};

/// Computes sequences piece by piece in one stage.
template <class Scalar>
class Played {
 public:
  Played(Plain& plain, std::uint32_t blocks) : tables_(blocks) {
    stage_ = plain.open<Scalar>(blocks).value();
  }
  /// A piece of a step: rows [first, first + count) of a sequence.
  struct Part {
    std::uint64_t seq_id;
    const Rows& rows;
    std::uint32_t first;
    std::uint32_t count;
  };
  Rows step(const std::vector<Part>& parts) {
    std::vector<Scalar> all;
    std::vector<Piece> pieces;
    for (const Part& part : parts) {
      tables_.extend(part.seq_id, part.first + part.count).value();
      for (std::uint32_t at = part.first; at < part.first + part.count; ++at) {
        all.insert(all.end(), part.rows[at].begin(), part.rows[at].end());
      }
      pieces.push_back({.first = part.first,
                        .count = part.count,
                        .runs = tables_.runs(part.seq_id, part.first + part.count),
                        .logits = Piece::Logits::of_last_row});
    }
    const auto count = static_cast<std::int64_t>(all.size() / 24);
    return stage_->forward(Tensor::of<Scalar>({count, 24}, std::span<const Scalar>(all)), pieces);
  }
  BlockTables& tables() { return tables_; }

 private:
  BlockTables tables_;
  std::unique_ptr<Stage> stage_;
};

void expect_near(const std::vector<double>& found, const std::vector<double>& expected,
                 double bound) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t at = 0; at < found.size(); ++at) {
    ASSERT_NEAR(found[at], expected[at], bound) << "token " << at;
  }
}

TEST(Stage, APromptHasTheLogitsOfPlainLoops) {
  Plain plain;
  const Rows rows = plain.random_rows(21);
  Played<double> played(plain, 4);
  expect_near(played.step({{1, rows, 0, 21}}).at(0), plain.logits(rows).back(), 1e-10);
}

TEST(Stage, FloatsAreAsNearAsFloatsGet) {
  Plain plain;
  const Rows rows = plain.random_rows(21);
  Played<float> played(plain, 4);
  expect_near(played.step({{1, rows, 0, 21}}).at(0), plain.logits(rows).back(), 1e-4);
}

TEST(Stage, SequencesThatGrowInTurnsDoNotMix) {
  Plain plain;
  const Rows one = plain.random_rows(50);
  const Rows two = plain.random_rows(50);
  const Rows expected_one = plain.logits(one);
  const Rows expected_two = plain.logits(two);
  Played<double> played(plain, 8);
  (void)played.step({{1, one, 0, 10}, {2, two, 0, 3}});
  (void)played.step({{2, two, 3, 20}, {1, one, 10, 2}});
  for (std::uint32_t at = 12; at < 39; ++at) {
    const Rows found = played.step({{1, one, at, 1}, {2, two, at + 11, 1}});
    expect_near(found.at(0), expected_one[at], 1e-10);
    expect_near(found.at(1), expected_two[at + 11], 1e-10);
  }
  EXPECT_GT(played.tables().runs(1, 39).size(), 1U);
}

TEST(Stage, BlocksThatAreTakenAgainHoldNothingOfBefore) {
  Plain plain;
  const Rows one = plain.random_rows(30);
  const Rows two = plain.random_rows(30);
  Played<double> played(plain, 2);
  (void)played.step({{1, one, 0, 30}});
  played.tables().free(1);
  (void)played.step({{2, two, 0, 17}});
  expect_near(played.step({{2, two, 17, 13}}).at(0), plain.logits(two).back(), 1e-10);
}

TEST(Stage, AWeightThatIsMissingOrOfAnotherShapeIsNamed) {
  {
    Plain plain;
    plain.cut("layers.2.mlp.down_proj");
    EXPECT_TRUE(fails_with(plain.open<float>(1), ErrorCode::schema_mismatch,
                           "model.layers.2.mlp.down_proj.weight has the shape [23, 40]"));
  }
  {
    Plain plain;
    plain.forget("layers.2.mlp.down_proj");
    EXPECT_TRUE(fails_with(plain.open<float>(1), ErrorCode::not_found, "layers.2.mlp.down_proj"));
  }
  Plain plain;
  plain.forget("layers.0.mlp.down_proj");  // belongs to the other stage
  EXPECT_TRUE(succeeds(plain.open<float>(1)));
  EXPECT_TRUE(fails_with(plain.open<std::int32_t>(1), ErrorCode::unsupported_dtype, "i32"));
}

TEST(LlamaConfig, IsReadFromTheHeadOfTheFile) {
  const auto config = LlamaConfig::parse(kConfigText);
  ASSERT_TRUE(succeeds(config));
  EXPECT_EQ(config->width, kTiny.width);
  EXPECT_EQ(config->head_width(), 4U);
  EXPECT_EQ(config->heads_of_a_key(), 2U);
  EXPECT_EQ(config->rms_eps, 1e-5);
}

TEST(LlamaConfig, WhatNoModelHasIsNamed) {
  const auto with = [](const std::string& what, const std::string& by) {
    std::string text = kConfigText;
    return LlamaConfig::parse(text.replace(text.find(what), what.size(), by));
  };
  EXPECT_TRUE(fails_with(with("\"heads\":6,", ""), ErrorCode::corrupt_data, "heads is missing"));
  EXPECT_TRUE(fails_with(with("\"heads\":6", "\"heads\":0"), ErrorCode::corrupt_data, "heads is"));
  EXPECT_TRUE(fails_with(with("\"heads\":6", "\"heads\":\"6\""), ErrorCode::corrupt_data));
  EXPECT_TRUE(fails_with(with("\"heads\":6", "\"heads\":5"), ErrorCode::corrupt_data, "5 heads"));
  EXPECT_TRUE(fails_with(with("\"heads\":6", "\"heads\":8"), ErrorCode::corrupt_data, "8 heads"));
  EXPECT_TRUE(fails_with(with("\"layers\":3", "\"layers\":1.5"), ErrorCode::corrupt_data, "whole"));
  EXPECT_TRUE(fails_with(LlamaConfig::parse("{"), ErrorCode::corrupt_data));
  EXPECT_TRUE(fails_with(LlamaConfig::of({}), ErrorCode::corrupt_data, "missing"));
}

}  // namespace
}  // namespace engine
