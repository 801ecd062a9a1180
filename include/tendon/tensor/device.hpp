// SPDX-License-Identifier: Apache-2.0
// The former place of Device, kept for one minor version.
#pragma once

#include <tendon/memory/device.hpp>
