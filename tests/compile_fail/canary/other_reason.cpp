// SPDX-License-Identifier: Apache-2.0
// expect: use of deleted function
#ifdef TENDON_MUST_COMPILE
int main() { return 0; }
#else
int main() { return undeclared; }
#endif
