"""A few instructions of the PIC18 by name, for programs of a handful of words."""

from __future__ import annotations

import struct

WREG, STATUS, BSR = 0xFE8, 0xFD8, 0xFE0
C, DC, Z, OV, N = 0x01, 0x02, 0x04, 0x08, 0x10
FILE = 0x20
"""The file register of the tests: in the access bank."""


def _table(text: str) -> dict[str, int]:
    words = text.split()
    return dict(zip(words[::2], (int(code, 16) for code in words[1::2]), strict=True))


_FILE_OPERATIONS = _table(
    "addwf 24 addwfc 20 andwf 14 comf 1C decf 04 decfsz 2C dcfsnz 4C incf 28 incfsz 3C infsnz 48 iorwf 10"
    " movf 50 rlcf 34 rlncf 44 rrcf 30 rrncf 40 subfwb 54 subwf 5C subwfb 58 swapf 38 xorwf 18"
)
_PLAIN_OPERATIONS = _table(
    "clrf 6A cpfseq 62 cpfsgt 64 cpfslt 60 movwf 6E mulwf 02 negf 6C setf 68 tstfsz 66"
)
_BIT_OPERATIONS = _table("btg 70 bsf 80 bcf 90 btfss A0 btfsc B0")
_LITERALS = _table(
    "sublw 08 iorlw 09 xorlw 0A andlw 0B retlw 0C mullw 0D movlw 0E addlw 0F movlb 01"
    " bz E0 bnz E1 bc E2 bnc E3 bov E4 bnov E5 bn E6 bnn E7"
)
_INHERENT = _table(
    "nop 00 push 05 pop 06 daw 07 tblrd 08 tblrd+ 09 tblrd- 0A +tblrd 0B tblwt 0C retfie 10 retfie_fast 11"
    " return 12 return_fast 13 reset FF"
)


def op(name: str, operand: int = 0, more: int = 1) -> list[int]:
    """The words of an instruction.

    Args:
        name: Its mnemonic.
        operand: A register below 0x60 or from 0xF60 on, a literal, or an address or offset in words.
        more: Destination (1 the register, 0 W), bit, second register, pointer value.
    """
    if name in _INHERENT:
        return [_INHERENT[name]]
    if name in _LITERALS:
        return [_LITERALS[name] << 8 | operand & 0xFF]
    if name in _FILE_OPERATIONS:
        return [(_FILE_OPERATIONS[name] | more << 1) << 8 | operand & 0xFF]
    if name in _PLAIN_OPERATIONS:
        return [_PLAIN_OPERATIONS[name] << 8 | operand & 0xFF]
    if name in _BIT_OPERATIONS:
        return [(_BIT_OPERATIONS[name] | more << 1) << 8 | operand & 0xFF]
    if name == "movff":
        return [0xC000 | operand, 0xF000 | more]
    if name == "lfsr":
        return [0xEE00 | operand << 4 | more >> 8, 0xF000 | more & 0xFF]
    if name in ("bra", "rcall"):
        return [(0xD000 if name == "bra" else 0xD800) | operand & 0x7FF]
    first = {"goto": 0xEF00, "call": 0xEC00, "call_fast": 0xED00}[name]
    return [first | operand & 0xFF, 0xF000 | operand >> 8]


def program(*instructions: list[int], at: int = 0) -> bytes:
    """Program memory with these instructions at an address; the rest is blank, which executes as NOP."""
    words = [word for instruction in instructions for word in instruction]
    return b"\xff" * at + struct.pack(f"<{len(words)}H", *words)
