# SPDX-License-Identifier: Apache-2.0
"""Text to tokens and back, by the metadata of the GGUF file.

There are two encoders. One reads `<|im_end|>` as the token that ends a message, for the template's own text. The
other knows no such tokens, for the text of people.
"""

from __future__ import annotations

import codecs
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment
from safetensors import safe_open
from tokenizers import AddedToken, Tokenizer as Encoder, models, pre_tokenizers

ROLES = ("system", "user", "assistant")
_CONTROL = 3  # the token_type of GGUF


class Tokenizer:
    """Byte-level BPE with single digits, which GGUF calls gpt2 / smollm."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        said = (metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre"))
        if said != ("gpt2", "smollm"):
            raise ValueError(f"tokenizer: the file's is {said}; legal is ('gpt2', 'smollm')")
        self._tokens: list[str] = metadata["tokenizer.ggml.tokens"]
        types = metadata["tokenizer.ggml.token_type"]
        self.control = frozenset(index for index, kind in enumerate(types) if kind == _CONTROL)
        self.eos_token_id = int(metadata["tokenizer.ggml.eos_token_id"])
        vocabulary = {text: index for index, text in enumerate(self._tokens)}
        merges = [(first, second) for first, second in (
            merge.split(" ") for merge in metadata["tokenizer.ggml.merges"])]
        self._plain = self._encoder(vocabulary, merges)
        self._special = self._encoder(vocabulary, merges)
        self._special.add_special_tokens([
            AddedToken(self._tokens[index], special=True, normalized=False)
            for index in sorted(self.control)])
        # The template's own blanks, not those of its source lines.
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        self._template = environment.from_string(metadata["tokenizer.chat_template"])

    @staticmethod
    def open(checkpoint: Path) -> Tokenizer:
        """Reads the tokenizer from the header of the converted file."""
        with safe_open(checkpoint, "np") as file:
            return Tokenizer(json.loads((file.metadata() or {})["tokenizer"]))

    @staticmethod
    def _encoder(vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> Encoder:
        encoder = Encoder(models.BPE(vocab=vocabulary, merges=merges))
        encoder.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
        return encoder

    def __len__(self) -> int:
        return len(self._tokens)

    def encode(self, text: str) -> list[int]:
        """Encodes plain text: nothing in it is a control token."""
        return list(self._plain.encode(text).ids)

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Encodes the prompt for an answer to messages {role, content}. A content never ends its message."""
        marks = []
        shown = []
        nonce = secrets.token_hex(16)
        for number, message in enumerate(messages):
            if message.get("role") not in ROLES:
                raise ValueError(f"messages[{number}].role is {message.get('role')!r}; legal is one of "
                                 f"{', '.join(ROLES)}")
            if not isinstance(message.get("content"), str):
                raise ValueError(f"messages[{number}].content is {type(message.get('content')).__name__}; "
                                 "legal is a string")
            marks.append(f"{nonce}:{number}:")
            shown.append({"role": message["role"], "content": marks[-1]})
        rest = self._template.render(messages=shown, add_generation_prompt=True)
        tokens: list[int] = []
        for number, mark in enumerate(marks):
            before, found, rest = rest.partition(mark)
            if not found:
                raise ValueError(f"messages[{number}] is not shown by the chat template; leave it out")
            tokens += self._special.encode(before).ids
            tokens += self.encode(messages[number]["content"])
        return tokens + self._special.encode(rest).ids

    def bytes_of(self, token: int) -> bytes:
        """Returns the bytes of a token's text; none for control tokens."""
        return b"" if token in self.control else bytes(map(_BYTES.__getitem__, self._tokens[token]))

    def name_of(self, token: int) -> str:
        """Returns the file's name of a token; for a control token the written form, such as <|im_end|>."""
        return self._tokens[token]

    def decode(self, tokens: Iterable[int]) -> str:
        return b"".join(map(self.bytes_of, tokens)).decode(errors="replace")


def _bytes_of_characters() -> dict[str, int]:
    """Returns the bytes of the visible characters with which byte-level BPE writes them: printable ones as
    themselves, the others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in printable)
    return {**{chr(byte): byte for byte in printable},
            **{chr(0x100 + number): byte for number, byte in enumerate(others)}}


_BYTES = _bytes_of_characters()


class Detokenizer:
    """Text of a growing sequence, piece by piece: whole characters, without any text that may belong to a stop string.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stop = [text for text in stop if text]
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self.stopped_by: str | None = None

    def push(self, token: int) -> str:
        """Returns the text that can be shown now; nothing after a stop string."""
        return self._shown(self._decoder.decode(self._tokenizer.bytes_of(token)), 0)

    def finish(self) -> str:
        """Returns the rest when no token follows; an incomplete character becomes U+FFFD."""
        return self._shown(self._decoder.decode(b"", final=True), 1)

    def _shown(self, text: str, last: int) -> str:
        if self.stopped_by is not None:
            return ""
        self._held += text
        found = [(at, stop) for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if found:
            at, self.stopped_by = min(found, key=lambda one: one[0])
            shown, self._held = self._held[:at], ""
            return shown
        keep = 0 if last else max((self._begun(stop) for stop in self._stop), default=0)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def _begun(self, stop: str) -> int:
        """Returns how many characters at the end of the held text begin this stop string."""
        return next((count for count in range(min(len(stop) - 1, len(self._held)), 0, -1)
                     if self._held.endswith(stop[:count])), 0)
