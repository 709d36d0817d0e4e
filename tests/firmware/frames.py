"""Frames of the LVPM's serial protocol, written down a second time: the judge does not use our decoder."""

from __future__ import annotations

GET_STATUS = bytes.fromhex("01 00 00")
PREPARE = bytes.fromhex("01 1b 01")
START = bytes.fromhex("02 ff ff ff ff 03 e8")
STOP = bytes.fromhex("03 00")

STATUS_BYTES = 60
"""A status frame with its length and checksum."""


def frame(body: bytes) -> bytes:
    """Length, body, checksum."""
    framed = bytes([len(body) + 1]) + body
    return framed + bytes([sum(framed) & 0xFF])


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """The whole frames at the start of a stream, and the rest.

    Raises:
        ValueError: A checksum is wrong.
    """
    frames = []
    while data and len(data) > data[0]:
        whole, data = data[: data[0] + 1], data[data[0] + 1 :]
        if sum(whole[:-1]) & 0xFF != whole[-1]:
            raise ValueError(f"wrong checksum: {whole.hex(' ')}")
        frames.append(whole)
    return frames, data
