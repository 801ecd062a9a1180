// SPDX-License-Identifier: Apache-2.0
// TENDON_SANITIZED: true if this is built with an address or thread sanitizer, which has its own
// malloc and memory.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TENDON_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TENDON_SANITIZED 1
#endif
#endif
#ifndef TENDON_SANITIZED
#define TENDON_SANITIZED 0
#endif
