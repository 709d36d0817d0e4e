"""Instructions of the simulated core. Unless noted, the cases are the examples of the data sheet DS39632."""

from __future__ import annotations

import pytest

from tests.firmware.assembler import BSR, DC, FILE, OV, STATUS, WREG, C, N, Z, op, program
from tests.firmware.chip import Chip
from tests.firmware.images import FirmwareError

PRODL, PRODH, TABLAT, TBLPTRL = 0xFF3, 0xFF4, 0xFF5, 0xFF6
FSR0L, FSR0H, POSTINC0, POSTDEC0, PREINC0, PLUSW0, INDF0 = 0xFE9, 0xFEA, 0xFEE, 0xFED, 0xFEC, 0xFEB, 0xFEF
PCL, PCLATH, TOSL, STKPTR = 0xFF9, 0xFFA, 0xFFD, 0xFFC
TO_W, TO_FILE = 0, 1


def chip_with(*instructions: list[int], w: int = 0, status: int = 0, file: int = 0) -> Chip:
    chip = Chip(program(*instructions))
    chip.poke(WREG, w)
    chip.poke(STATUS, status)
    chip.poke(FILE, file)
    return chip


def step(chip: Chip, instructions: int = 1) -> int:
    """Execute; returns the cycles it took."""
    before = chip.cycles
    for _ in range(instructions):
        chip.run(1)
    return chip.cycles - before


LITERALS = [
    ("addlw", 0x15, 0x10, 0, 0x25, 0),
    ("andlw", 0x5F, 0xA3, 0, 0x03, 0),
    ("iorlw", 0x35, 0x9A, 0, 0xBF, N),
    ("xorlw", 0xAF, 0xB5, 0, 0x1A, 0),
    ("movlw", 0x5A, 0x00, Z, 0x5A, Z),
    ("sublw", 0x02, 0x01, 0, 0x01, C | DC),
    ("sublw", 0x02, 0x02, 0, 0x00, C | DC | Z),
    ("sublw", 0x02, 0x03, 0, 0xFF, N),
    # By hand: 0x7F + 1 = 0x80 carries out of the low half and changes the sign.
    ("addlw", 0x01, 0x7F, 0, 0x80, DC | OV | N),
    ("addlw", 0x01, 0xFF, 0, 0x00, C | DC | Z),
    ("sublw", 0x80, 0x01, 0, 0x7F, C | OV),
]


@pytest.mark.parametrize(("name", "k", "w", "status", "result", "flags"), LITERALS)
def test_literals(name: str, k: int, w: int, status: int, result: int, flags: int) -> None:
    chip = chip_with(op(name, k), w=w, status=status)
    assert step(chip) == 1
    assert (chip.peek(WREG), chip.peek(STATUS)) == (result, flags)


FILE_CASES = [
    # name, to, W, file, flags before -> W, file, flags after
    ("addwf", TO_W, 0x17, 0xC2, 0, 0xD9, 0xC2, N),
    ("addwfc", TO_W, 0x4D, 0x02, C, 0x50, 0x02, DC),
    ("andwf", TO_W, 0x17, 0xC2, 0, 0x02, 0xC2, 0),
    ("comf", TO_W, 0x00, 0x13, 0, 0xEC, 0x13, N),
    ("decf", TO_FILE, 0x00, 0x01, 0, 0x00, 0x00, C | DC | Z),
    ("incf", TO_FILE, 0x00, 0xFF, 0, 0x00, 0x00, C | DC | Z),
    ("iorwf", TO_W, 0x91, 0x13, 0, 0x93, 0x13, N),
    ("movf", TO_W, 0xFF, 0x22, 0, 0x22, 0x22, 0),
    ("rlcf", TO_W, 0x00, 0xE6, 0, 0xCC, 0xE6, C | N),
    ("rlncf", TO_FILE, 0x00, 0xAB, 0, 0x00, 0x57, 0),
    ("rrcf", TO_W, 0x00, 0xE6, 0, 0x73, 0xE6, 0),
    ("rrncf", TO_FILE, 0x00, 0xD7, 0, 0x00, 0xEB, N),
    ("rrncf", TO_W, 0x00, 0xD7, 0, 0xEB, 0xD7, N),
    ("subfwb", TO_FILE, 0x02, 0x03, C, 0x02, 0xFF, N),
    ("subfwb", TO_W, 0x05, 0x02, C, 0x03, 0x02, C | DC),
    ("subfwb", TO_FILE, 0x02, 0x01, 0, 0x02, 0x00, C | DC | Z),
    ("subwf", TO_FILE, 0x02, 0x03, 0, 0x02, 0x01, C | DC),
    ("subwf", TO_W, 0x02, 0x02, 0, 0x00, 0x02, C | DC | Z),
    ("subwf", TO_FILE, 0x02, 0x01, 0, 0x02, 0xFF, N),
    ("subwfb", TO_FILE, 0x0D, 0x19, C, 0x0D, 0x0C, C),
    ("subwfb", TO_W, 0x1A, 0x1B, 0, 0x00, 0x1B, C | DC | Z),
    ("subwfb", TO_FILE, 0x0E, 0x03, C, 0x0E, 0xF5, N),
    ("swapf", TO_FILE, 0x00, 0x53, N, 0x00, 0x35, N),
    ("xorwf", TO_FILE, 0xB5, 0xAF, 0, 0xB5, 0x1A, 0),
    # By hand: shifts through the carry at both ends.
    ("rlcf", TO_FILE, 0x00, 0x80, 0, 0x00, 0x00, C | Z),
    ("rlcf", TO_FILE, 0x00, 0x40, C, 0x00, 0x81, N),
    ("rrcf", TO_FILE, 0x00, 0x01, C, 0x00, 0x80, C | N),
]


@pytest.mark.parametrize(("name", "to", "w", "file", "status", "w_after", "file_after", "flags"), FILE_CASES)
def test_file_registers(
    name: str, to: int, w: int, file: int, status: int, w_after: int, file_after: int, flags: int
) -> None:
    chip = chip_with(op(name, FILE, to), w=w, status=status, file=file)
    assert step(chip) == 1
    assert (chip.peek(WREG), chip.peek(FILE), chip.peek(STATUS)) == (w_after, file_after, flags)


@pytest.mark.parametrize(
    ("w", "before", "after", "flags"),
    [
        (0xA5, 0, 0x05, C),
        (0xCE, 0, 0x34, C),
        (0x99, 0, 0x99, 0),  # by hand: already decimal
        (0x0A, 0, 0x10, 0),  # 5 + 5
        (0x9A, 0, 0x00, C),  # 95 + 5
        (0x02, DC, 0x08, DC),  # 9 + 9 left 0x12; its low half needs the correction although it looks decimal
        (0x32, C, 0x92, C),  # 91 + 41 = 132 wraps to 0x32 with a carry from the tens
    ],
)
def test_decimal_adjust(w: int, before: int, after: int, flags: int) -> None:
    chip = chip_with(op("daw"), w=w, status=before)
    step(chip)
    assert (chip.peek(WREG), chip.peek(STATUS)) == (after, flags)


def test_negate_set_clear_and_move() -> None:
    chip = chip_with(op("negf", FILE), op("movwf", FILE + 1), op("setf", FILE + 2), op("clrf", FILE + 3))
    chip.poke(FILE, 0x3A)
    chip.poke(FILE + 3, 0x5A)
    chip.poke(WREG, 0x4F)
    assert step(chip) == 1
    assert (chip.peek(FILE), chip.peek(STATUS)) == (0xC6, N)
    assert step(chip, 3) == 3
    assert [chip.peek(FILE + i) for i in (1, 2, 3)] == [0x4F, 0xFF, 0x00]
    assert chip.peek(STATUS) == N | Z


def test_products() -> None:
    chip = chip_with(op("mulwf", FILE), op("movlw", 0xE2), op("mullw", 0xC4), w=0xC4, file=0xB5)
    step(chip)
    assert (chip.peek(PRODH), chip.peek(PRODL)) == (0x8A, 0x94)
    step(chip, 2)
    assert (chip.peek(PRODH), chip.peek(PRODL)) == (0xAD, 0x08)


@pytest.mark.parametrize(
    ("name", "file", "after"), [("btg", 0x75, 0x65), ("bsf", 0x0A, 0x8A), ("bcf", 0xC7, 0x47)]
)
def test_bits(name: str, file: int, after: int) -> None:
    bit = 4 if name == "btg" else 7
    chip = chip_with(op(name, FILE, bit), file=file)
    step(chip)
    assert chip.peek(FILE) == after


SKIPS = [
    ("btfss", 7, 0x00, 0x80, True), ("btfss", 7, 0x00, 0x7F, False), ("btfsc", 7, 0x00, 0x7F, True),
    ("cpfseq", 0, 0x10, 0x10, True), ("cpfseq", 0, 0x10, 0x11, False), ("cpfsgt", 0, 0x10, 0x11, True),
    ("cpfsgt", 0, 0x10, 0x10, False), ("cpfslt", 0, 0x10, 0x0F, True), ("cpfslt", 0, 0x10, 0x90, False),
    ("tstfsz", 0, 0x00, 0x00, True), ("tstfsz", 0, 0x00, 0x01, False), ("incfsz", 1, 0x00, 0xFF, True),
    ("incfsz", 1, 0x00, 0xFE, False), ("decfsz", 1, 0x00, 0x01, True), ("infsnz", 1, 0x00, 0xFF, False),
    ("infsnz", 1, 0x00, 0x01, True), ("dcfsnz", 1, 0x00, 0x01, False), ("dcfsnz", 1, 0x00, 0x02, True),
]  # fmt: skip


@pytest.mark.parametrize(("name", "more", "w", "file", "skips"), SKIPS)
def test_skips_take_two_cycles_or_three_over_two_words(
    name: str, more: int, w: int, file: int, skips: bool
) -> None:
    short = chip_with(op(name, FILE, more), op("nop"), w=w, file=file)
    assert step(short) == (2 if skips else 1)
    assert short.program_counter == (4 if skips else 2)
    for two_words in (op("goto", 0x100), op("call", 0x100), op("movff", 1, 2), op("lfsr", 0, 0x123)):
        long = chip_with(op(name, FILE, more), two_words, w=w, file=file)
        assert step(long) == (3 if skips else 1)
        assert long.program_counter == (6 if skips else 2)


@pytest.mark.parametrize(("name", "taken_with"), [("bz", Z), ("bc", C), ("bov", OV), ("bn", N)])
def test_conditional_branches(name: str, taken_with: int) -> None:
    opposite = name.replace("b", "bn")
    for mnemonic, flags in ((name, taken_with), (opposite, 0x1F & ~taken_with)):
        back = chip_with(op("nop"), op("nop"), op(mnemonic, -3), status=flags)
        step(back, 2)
        assert step(back) == 2
        assert back.program_counter == 0
        passed = chip_with(op(mnemonic, 5), status=0x1F & ~flags)
        assert step(passed) == 1
        assert passed.program_counter == 2


def test_calls_and_returns() -> None:
    calls = program(op("call_fast", 0x20), op("nop"), op("rcall", 0x1C))
    chip = Chip(calls.ljust(0x40, b"\0") + program(op("return_fast")))
    # call at 0, nop at 4, rcall at 6 (to 8 + 2 * 0x1C = 0x40); the subroutine is at 0x40
    chip.poke(WREG, 0x11)
    chip.poke(BSR, 0x03)
    assert step(chip) == 2
    assert (chip.program_counter, chip.peek(STKPTR)) == (
        0x40,
        0,
    )  # the pointer lives in the core, not in memory
    chip.poke(WREG, 0x22)
    chip.poke(BSR, 0x05)
    assert step(chip) == 2
    assert (chip.program_counter, chip.peek(WREG), chip.peek(BSR)) == (4, 0x11, 0x03)
    assert step(chip, 2) == 3
    assert chip.program_counter == 0x40


def test_move_between_registers_and_pointers() -> None:
    chip = chip_with(op("lfsr", 0, 0x3FF), op("movff", FILE, POSTINC0), op("movff", FILE, PREINC0), file=0x5A)
    assert step(chip) == 2
    assert (chip.peek(FSR0H), chip.peek(FSR0L)) == (0x03, 0xFF)
    assert step(chip) == 2
    assert (chip.peek(0x3FF), chip.peek(FSR0H), chip.peek(FSR0L)) == (0x5A, 0x04, 0x00)
    step(chip)
    assert (chip.peek(0x401), chip.peek(FSR0L)) == (0x5A, 0x01)


POINTERS = [
    (INDF0, 0x11, 0x100),
    (POSTINC0, 0x11, 0x101),
    (POSTDEC0, 0x11, 0x0FF),
    (PREINC0, 0x22, 0x101),
    (PLUSW0, 0x33, 0x100),
]


@pytest.mark.parametrize(("register", "read", "pointer"), POINTERS)
def test_indirect_access_moves_the_pointer_once(register: int, read: int, pointer: int) -> None:
    chip = chip_with(op("movf", register & 0xFF, TO_W))
    chip.poke(FSR0H, 1)
    chip.poke(WREG, 0xFE)  # PLUSW takes it as -2
    for address, value in ((0x0FE, 0x33), (0x100, 0x11), (0x101, 0x22)):
        chip.poke(address, value)
    step(chip)
    assert chip.peek(WREG) == read
    assert (chip.peek(FSR0H) << 8 | chip.peek(FSR0L)) == pointer


def test_read_modify_write_through_a_pointer_moves_it_once() -> None:
    chip = chip_with(op("incf", POSTINC0 & 0xFF, TO_FILE))
    chip.poke(FSR0L, 0x30)
    chip.poke(0x30, 7)
    step(chip)
    assert (chip.peek(0x30), chip.peek(FSR0L)) == (8, 0x31)


def test_an_indirect_register_reached_indirectly_reads_zero() -> None:
    chip = chip_with(op("movf", INDF0 & 0xFF, TO_W), w=0x55)
    chip.poke(FSR0H, INDF0 >> 8)
    chip.poke(FSR0L, INDF0 & 0xFF)
    step(chip)
    assert chip.peek(WREG) == 0


def test_banks_and_memory_that_is_not_there() -> None:
    chip = chip_with(op("movlb", 0x3), [0x6F10], op("movlb", 0x9), [0x6F10], [0x5110])  # MOVWF, MOVF with BSR
    chip.poke(WREG, 0x77)
    step(chip, 2)
    assert chip.peek(0x310) == 0x77
    step(chip, 3)
    assert chip.peek(WREG) == 0  # bank 9 does not exist on this chip


def test_flags_win_over_a_result_written_to_status() -> None:
    chip = chip_with(op("clrf", STATUS & 0xFF), status=0x1F & ~Z)
    step(chip)
    assert chip.peek(STATUS) == 0x1F  # "CLRF STATUS sets Z and leaves the rest" (DS39632, 5.3.6)


def test_table_reads() -> None:
    chip = Chip(program(op("tblrd+"), op("tblrd-"), op("+tblrd"), op("tblrd")))
    chip.poke(TBLPTRL, 2)
    seen = []
    for _ in range(4):
        assert step(chip) == 2
        seen.append((chip.peek(TABLAT), chip.peek(TBLPTRL)))
    assert seen == [(0x0A, 3), (0x00, 2), (0x00, 3), (0x00, 3)]  # words 09 0A 0B 08, low byte first


def test_computed_jump() -> None:
    chip = chip_with(op("movf", PCL & 0xFF, TO_W), op("addwf", PCL & 0xFF, TO_FILE), w=0)
    step(chip)
    assert chip.peek(WREG) == 2
    chip.poke(PCLATH, 0x12)
    assert step(chip) == 2  # the word fetched meanwhile is thrown away
    assert (
        chip.program_counter == 6
    )  # adding reads PCL, which loads PCLATH with the upper part of the counter


def test_faults_are_named() -> None:
    deep = Chip(program(op("push"), op("bra", -2)))
    with pytest.raises(FirmwareError, match="return stack overflows at 0x0000"):
        deep.run(200)
    for words, message in (
        (op("pop"), "underflows"),
        (op("reset"), "resets the chip"),
        (op("tblwt"), "program memory"),
        ([0xE800], "extended set"),
        ([0x0001], "no such instruction"),
        (op("goto", 0x8000), "ran out of program memory"),
    ):
        with pytest.raises(FirmwareError, match=message):
            Chip(program(words)).run(10)
