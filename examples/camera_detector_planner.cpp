// SPDX-License-Identifier: Apache-2.0
// Three processes: a camera, a detector on a GPU, a planner. The camera publishes frames in host
// memory and does not know about GPUs. The detector receives them on its GPU, cuts out the rows
// where something moved, and publishes the cut from the GPU. The planner receives it in host
// memory. Without a GPU the detector says so and works in host memory. In three terminals:
//
//   camera_detector_planner detect                   prints its address: 127.0.0.1:40231
//   camera_detector_planner plan 127.0.0.1:40231
//   camera_detector_planner see 127.0.0.1:40231
//
// Without an argument it starts all three.
//
// Prints:
// frame 1: object of brightness 50 in 16 rows of 640 from row 100 on
// frame 2: object of brightness 100 in 16 rows of 640 from row 200 on
// frame 3: object of brightness 150 in 16 rows of 640 from row 300 on
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <tendon/tendon.hpp>
#include <vector>

using namespace tendon;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t kFrames = 3;
constexpr std::int64_t kHeight = 480;
constexpr std::int64_t kWidth = 640;
constexpr std::int64_t kRows = 16;  // of an object

Publisher keeps_all(Node& node, const std::string& key) {
  return Publisher::declare(node, key, {.qos = {keep_last(kFrames)}}).value();
}

void see(Node& node) {
  Publisher frames = keeps_all(node, "camera/frames");
  frames.wait_for_subscribers(1, 60s).value();
  for (std::int64_t number = 1; number <= kFrames; ++number) {
    Tensor image = Tensor::zeros(DType::u8, {kHeight, kWidth}).value();
    const std::int64_t row = 100 * number;
    std::ranges::fill(image.slice(0, row, row + kRows).value().span<std::uint8_t>(),
                      static_cast<std::uint8_t>(50 * number));
    TensorDict frame;
    frame.set("image", image);
    frame.set("number", number);
    frame.set("row", row);  // where something moved
    frames.publish(frame).value();
  }
  frames.close(60s).value();  // waits until the detector was shown all of it
}

// On the GPU, or in host memory where this process can use none: the frame waits for that answer.
Sample next_frame(Subscriber& frames, Device& place) {
  Result<Sample> frame = frames.recv({.device = place}, 60s);
  if (!frame && place != cpu() && frame.error().code != ErrorCode::timeout) {
    std::cerr << "detector: works in host memory, because " << frame.error().message() << "\n";
    place = cpu();
    frame = frames.recv({.device = place}, 60s);
  }
  return std::move(frame).value();
}

void detect(Node& node) {
  Subscriber frames = Subscriber::declare(node, "camera/frames").value();
  Publisher objects = keeps_all(node, "detector/objects");
  objects.wait_for_subscribers(1, 60s).value();
  Device place{DeviceKind::cuda, 0};
  for (int count = 0; count < kFrames; ++count) {
    const Sample sample = next_frame(frames, place);
    const TensorDict& frame = *sample.tensors;
    const std::int64_t row = frame.value("row").as_i64();
    TensorDict object;
    object.set("cut", frame["image"].slice(0, row, row + kRows).value());  // a view on the GPU
    object.set("number", frame.value("number"));
    object.set("row", row);
    objects.publish(object, 60s).value();
  }
  std::cerr << "detector: its frames lay in " << place << "\n";
  objects.close(60s).value();
}

void plan(Node& node) {
  Subscriber objects = Subscriber::declare(node, "detector/objects").value();
  for (int count = 0; count < kFrames; ++count) {
    const Sample sample = objects.recv({.device = cpu()}, 60s).value();
    const TensorDict& object = *sample.tensors;
    const Tensor& cut = object["cut"];
    std::cout << "frame " << object.value("number").as_i64() << ": object of brightness "
              << int{cut.item<std::uint8_t>({0, 0})} << " in " << cut.shape()[0] << " rows of "
              << cut.shape()[1] << " from row " << object.value("row").as_i64() << " on"
              << std::endl;
  }
}

pid_t start(std::string role, std::string address) {
  std::string program = "/proc/self/exe";
  char* const arguments[] = {program.data(), role.data(), address.data(), nullptr};
  pid_t child = -1;
  const int failure = posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ);
  if (failure != 0) throw Exception(system_error("camera", "posix_spawn", failure));
  return child;
}

// The detector listens, because both others know it.
int run(const std::string& role, const std::string& address) {
  const bool is_detector = address.empty();
  Context context = Context::create({.name = role}).value();
  std::vector<std::string> peers;
  if (!is_detector) peers.push_back(address);
  Node node = Node::join(context,
                         {.domain = "robot",
                          .name = role,
                          .peers = peers,
                          .listen = is_detector ? "127.0.0.1:0" : ""},
                         10s)
                  .value();
  std::vector<pid_t> others;
  if (role == "all") {
    for (const char* const other : {"plan", "see"}) others.push_back(start(other, node.address()));
  } else if (is_detector) {
    std::cerr << "detector: listens on " << node.address() << "\n";
  }
  if (role == "see") see(node);
  if (role == "plan") plan(node);
  if (is_detector) detect(node);
  int failed = 0;
  for (const pid_t other : others) {
    int status = 0;
    waitpid(other, &status, 0);
    if (status != 0) ++failed;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "all", argc > 2 ? argv[2] : "");
  } catch (const Exception& failure) {
    std::cerr << failure.error().message() << "\n";
    return error_info(failure.code()).exit_code;
  }
}
