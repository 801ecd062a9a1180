// SPDX-License-Identifier: Apache-2.0
int* volatile leaked = nullptr;

int main() {
  leaked = new int(1);
  leaked = nullptr;
}
