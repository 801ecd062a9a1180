# SPDX-License-Identifier: Apache-2.0
"""Errors in the shape that clients of OpenAI's API read."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """Becomes {"error": {message, type, param, code}} with an HTTP status."""

    def __init__(self, status: int, message: str, *, kind: str = "invalid_request_error",
                 param: str | None = None, code: str | None = None, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.param, self.code = status, kind, param, code
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}


def bad_field(param: str, message: str, code: str | None = "invalid_value") -> ApiError:
    """Reports a field of the body by its name in the body."""
    return ApiError(400, f"{param}: {message}", param=param, code=code)


def unsupported(param: str, instead: str) -> ApiError:
    return bad_field(param, f"this engine does not support it; {instead}", code="unsupported_parameter")


def unavailable(message: str, code: str, retry_after: int) -> ApiError:
    return ApiError(503, message, kind="server_error", code=code, retry_after=retry_after)


def queue_full(message: str, retry_after: int) -> ApiError:
    return ApiError(429, message, kind="rate_limit_error", code="queue_full", retry_after=retry_after)


_OF_THE_REQUEST = {"context_too_long": "context_length_exceeded", "memory_too_small": "memory_too_small"}


def of_refusal(code: str, message: str, retry_after: int) -> ApiError:
    """Converts a refusal of the controller for a client."""
    if code in _OF_THE_REQUEST:
        return ApiError(400, message, param="prompt", code=_OF_THE_REQUEST[code])
    if code == "queue_full":
        return queue_full(message, retry_after)
    if code == "stopping":
        return unavailable(message, code, retry_after)
    return ApiError(500, f"the controller refused the request: {message}", kind="server_error", code=code)


def of_failure(code: str, message: str) -> ApiError:
    """Reports an accepted request that did not finish normally."""
    return ApiError(500, message, kind="server_error", code=code)


def internal_error() -> ApiError:
    return ApiError(500, "the front failed; its log says why", kind="server_error", code="internal_error")
