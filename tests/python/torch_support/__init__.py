# SPDX-License-Identifier: Apache-2.0
"""Process groups of torch for the tests of tendon.torch."""
