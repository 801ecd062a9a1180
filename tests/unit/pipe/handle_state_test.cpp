// SPDX-License-Identifier: Apache-2.0
// The table of pipe/handle_state.hpp, line by line.
#include "pipe/handle_state.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tendon::test {
namespace {

using detail::HandleState;
using State = HandleState::State;

void supervise(HandleState& handle) { handle.supervise(); }
void release(HandleState& handle) { (void)handle.release(); }
void drop(HandleState& handle) { (void)handle.drop(); }
void close(HandleState& handle) { (void)handle.close(); }

TEST(HandleState, GoesByItsTable) {
  struct Row {
    std::vector<void (*)(HandleState&)> way;
    State state, supervise, release, drop, close;
  };
  const std::vector<Row> rows{
      {{}, State::held, State::supervised, State::held, State::abandoned, State::closed},
      {{supervise},
       State::supervised,
       State::supervised,
       State::held,
       State::dropped,
       State::closed},
      {{supervise, drop},
       State::dropped,
       State::dropped,
       State::abandoned,
       State::dropped,
       State::closed},
      {{drop},
       State::abandoned,
       State::abandoned,
       State::abandoned,
       State::abandoned,
       State::closed},
      {{close}, State::closed, State::closed, State::closed, State::closed, State::closed},
  };
  for (const Row& row : rows) {
    const auto after = [&](void (*step)(HandleState&)) {
      HandleState handle;
      for (auto* const before : row.way) before(handle);
      if (step != nullptr) step(handle);
      return handle.state();
    };
    const auto name = static_cast<int>(row.state);
    EXPECT_EQ(after(nullptr), row.state) << name;
    EXPECT_EQ(after(supervise), row.supervise) << name;
    EXPECT_EQ(after(release), row.release) << name;
    EXPECT_EQ(after(drop), row.drop) << name;
    EXPECT_EQ(after(close), row.close) << name;
  }
}

TEST(HandleState, SaysOnceWhoEndsThePipe) {
  HandleState dropped;
  EXPECT_TRUE(dropped.drop());
  EXPECT_FALSE(dropped.drop());
  EXPECT_TRUE(dropped.is_over());
  EXPECT_TRUE(dropped.close());
  EXPECT_FALSE(dropped.close());

  HandleState supervised;
  supervised.supervise();
  EXPECT_FALSE(supervised.drop()) << "the server may still have a reason to give";
  EXPECT_FALSE(supervised.is_over());
  EXPECT_TRUE(supervised.release());
  EXPECT_FALSE(supervised.release());

  HandleState returned;
  returned.supervise();
  EXPECT_FALSE(returned.release());
  EXPECT_TRUE(returned.drop());
}

}  // namespace
}  // namespace tendon::test
