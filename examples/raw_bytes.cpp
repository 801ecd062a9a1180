// SPDX-License-Identifier: Apache-2.0
// Sends messages without tensors: bytes with a tag and a small header, such as a Protobuf message
// or a picture file. A server answers each client on a thread of its own.
//
// Prints:
// tag 1, header "text/plain": HELLO
// tag 2, header "text/plain": 5000000 bytes, all 'X'
// a TensorDict on the same pipe: f32 [3] {1, 2, 3}
// the server has 0 clients
#include <algorithm>
#include <cctype>
#include <iostream>
#include <string>
#include <tendon/tendon.hpp>

using namespace tendon;
using namespace std::chrono_literals;

namespace {

// Answers bytes in upper case and TensorDicts unchanged, until the client ends the stream.
void serve(Pipe pipe) {
  for (;;) {
    Result<Message> message = pipe.recv_message(30s);
    if (!message && message.error().code == ErrorCode::end_of_stream) return;
    if (message.value().tensors) {
      pipe.send(*message->tensors, 10s).value();
      continue;
    }
    std::string text(as_text(message->bytes.bytes()));
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
    pipe.send(as_bytes(text), {.tag = message->tag, .header = message->header.bytes()}, 10s)
        .value();
  }
}

Message ask(Pipe& pipe, std::string_view text, std::uint32_t tag) {
  pipe.send(as_bytes(text), {.tag = tag, .header = as_bytes("text/plain")}, 10s).value();
  Message answer = pipe.recv_message(10s).value();
  std::cout << "tag " << answer.tag << ", header \"" << as_text(answer.header.bytes()) << "\": ";
  return answer;
}

void run() {
  Context context = Context::create({.name = "raw_bytes"}).value();
  Server server = Server::serve(context, "127.0.0.1:0", serve).value();
  Pipe pipe = Pipe::connect(context, server.address(), 5s).value();

  std::cout << as_text(ask(pipe, "hello", 1).bytes.bytes()) << "\n";

  const Message large = ask(pipe, std::string(5'000'000, 'x'), 2);
  const std::string_view answer = as_text(large.bytes.bytes());
  std::cout << answer.size() << " bytes"
            << (answer.find_first_not_of('X') == std::string_view::npos ? ", all 'X'" : "") << "\n";

  TensorDict batch;
  batch.set("x", Tensor::of<float>({3}, {1, 2, 3}));
  pipe.send(batch, 10s).value();
  std::cout << "a TensorDict on the same pipe: " << pipe.recv(10s).value()["x"] << "\n";

  pipe.close(10s).value();    // the handler reads the end of the stream and returns
  server.close(10s).value();  // waits for it
  std::cout << "the server has " << server.client_count() << " clients\n";
}

}  // namespace

int main() {
  try {
    run();
    return 0;
  } catch (const Exception& failure) {
    std::cerr << failure.error().message() << "\n";
    return error_info(failure.code()).exit_code;
  }
}
