"""Timers, interrupts, SPI and EEPROM of the simulated chip, against the data sheet's figures and rules."""

from __future__ import annotations

import pytest

from tests.firmware.assembler import FILE, op, program
from tests.firmware.chip import Chip

INTCON, INTCON2, RCON, T0CON, TMR0L, TMR0H = 0xFF2, 0xFF1, 0xFD0, 0xFD5, 0xFD6, 0xFD7
PIR1, PIE1, IPR1, PR2, T2CON, TMR2 = 0xF9E, 0xF9D, 0xF9F, 0xFCB, 0xFCA, 0xFCC
SSPBUF, SSPSTAT, SSPCON1 = 0xFC9, 0xFC7, 0xFC6
EEADR, EEDATA, EECON1, EECON2 = 0xFA9, 0xFA8, 0xFA6, 0xFA7
GIEH, GIEL, TMR0IE, TMR0IF = 0x80, 0x40, 0x20, 0x04
TMR2IF = 0x02


def write(address: int, value: int) -> list[int]:
    return op("movlw", value) + op("movwf", address)


def reads_after_a_write(con: int, count: int) -> list[int]:
    """What TMR0L shows in the instructions that follow a write of 0x40 to it."""
    chip = Chip(program(write(T0CON, con), write(TMR0L, 0x40), count * op("movf", TMR0L, 0)))
    chip.run(4)
    seen = []
    for _ in range(count):
        chip.run(1)
        seen.append(chip.peek(0xFE8))
    return seen


def test_timer_0_stands_still_for_two_cycles_after_a_write() -> None:
    """DS33023, figure 11-3: three reads see the new value, then it counts."""
    assert reads_after_a_write(0xC8, 6) == [0x40, 0x40, 0x40, 0x41, 0x42, 0x43]


def test_timer_0_with_prescaler() -> None:
    """DS33023, figure 11-4: with a prescaler of 2, four reads see the new value."""
    assert reads_after_a_write(0xC0, 7) == [0x40, 0x40, 0x40, 0x40, 0x41, 0x41, 0x42]


def test_timer_0_in_16_bits_buffers_its_high_byte() -> None:
    chip = Chip(
        program(
            write(T0CON, 0x08),
            write(TMR0H, 0x12),
            write(TMR0L, 0xFE),
            op("bsf", T0CON, 7),
            op("movff", TMR0L, FILE),  # one cycle later: 0x12FF
            op("movff", TMR0L, FILE + 1),  # two more: the high byte is taken along
            op("movff", TMR0H, FILE + 2),
        )
    )
    chip.run(14)
    assert [chip.peek(FILE + i) for i in range(3)] == [0xFE, 0x00, 0x13]


def interrupt_program(isr: list[int], main: list[int], low_isr: list[int] | None = None) -> bytes:
    memory = bytearray(program(op("goto", 0x40)).ljust(0x100, b"\0"))
    memory[0x08 : 0x08 + 2 * len(isr)] = program(isr)
    if low_isr:
        memory[0x18 : 0x18 + 2 * len(low_isr)] = program(low_isr)
    memory[0x80 : 0x80 + 2 * len(main)] = program(main)
    return bytes(memory)


def test_an_interrupt_takes_three_cycles_to_its_first_instruction() -> None:
    """DS39500, 8.3: from the flag to the first instruction of the vector, whatever was executing."""
    main = write(T0CON, 0xC8) + write(INTCON, GIEH | TMR0IE) + write(TMR0L, 0xF0)
    for filler in (op("nop"), op("bra", -1)):
        chip = Chip(interrupt_program(op("nop"), main + 40 * filler))
        chip.run(2)
        while chip.program_counter != 0x80 + 2 * len(main):
            chip.run(1)
        overflow = chip.cycles + 2 + (0x100 - 0xF0)
        while chip.program_counter != 0x08:
            chip.run(1)
        assert chip.cycles == overflow + 3
        assert chip.peek(INTCON) & (GIEH | TMR0IF) == TMR0IF


def test_high_interrupts_the_low_one_and_both_return() -> None:
    high = op("bcf", INTCON, 2) + op("incf", FILE) + op("retfie")
    low = op("bcf", PIR1, 1) + op("incf", FILE + 1) + 30 * op("nop") + op("retfie")
    memory = bytearray(interrupt_program(high, [], op("bra", 0x60)))
    memory[0x18 + 2 + 0xC0 : 0x18 + 2 + 0xC0 + 2 * len(low)] = program(low)
    main = (
        op("bsf", RCON, 7)
        + op("bcf", IPR1, 1)
        + write(PR2, 99)
        + write(PIE1, TMR2IF)
        + write(T2CON, 0x04)
        + write(T0CON, 0xC8)
        + write(INTCON, GIEH | GIEL | TMR0IE)
        + op("bra", -1)
    )
    memory = memory.ljust(0x200, b"\0")
    memory[0x80 : 0x80 + 2 * len(main)] = program(main)
    chip = Chip(bytes(memory))
    chip.run(25_620)
    # Timer 0 overflows every 256 cycles, timer 2 every 100; each is served once a time.
    assert chip.peek(FILE) == pytest.approx(100, abs=1)
    assert chip.peek(FILE + 1) in (255, 0, 1)  # 256 times, in eight bits


@pytest.mark.parametrize(("con", "period"), [(0x04, 50), (0x05, 200), (0x06, 800), (0x14, 150)])
def test_timer_2_period_prescaler_and_postscaler(con: int, period: int) -> None:
    chip = Chip(program(write(PR2, 49), write(T2CON, con), 20_000 // 2 * op("nop")))
    chip.run(4)
    started = chip.cycles
    while not chip.peek(PIR1) & TMR2IF:
        chip.run(1)
    assert chip.cycles - started == period


@pytest.mark.parametrize(("mode", "cycles"), [(0x20, 8), (0x21, 32), (0x22, 128)])
def test_spi_takes_eight_bits_of_its_clock(mode: int, cycles: int) -> None:
    chip = Chip(program(write(SSPCON1, mode), write(SSPBUF, 0xA5), 200 * op("nop")))
    chip.run(4)
    started = chip.cycles
    while not chip.peek(SSPSTAT) & 1:
        chip.run(1)
    assert chip.cycles - started == cycles


def test_a_write_during_a_transfer_is_a_collision() -> None:
    chip = Chip(program(write(SSPCON1, 0x20), write(SSPBUF, 1), write(SSPBUF, 2)))
    chip.run(6)
    assert chip.peek(SSPCON1) & 0x80


UNLOCK = write(EECON2, 0x55) + write(EECON2, 0xAA)


@pytest.mark.parametrize(
    ("sequence", "written"),
    [(UNLOCK, True), (write(EECON2, 0xAA) + write(EECON2, 0x55), False), ([], False)],
)
def test_eeprom_is_written_after_the_unlock_sequence_only(sequence: list[int], written: bool) -> None:
    start = op("bsf", EECON1, 2) + write(EEADR, 7) + write(EEDATA, 0x42)
    chip = Chip(program(start, sequence, op("bsf", EECON1, 1), 30_000 // 2 * op("nop")))
    chip.run(20)
    assert bool(chip.peek(EECON1) & 2) == written  # busy
    assert chip.eeprom()[7] == (0x42 if written else 0xFF)


def test_eeprom_write_takes_four_milliseconds_and_reads_back() -> None:
    read = write(EEADR, 7) + op("bsf", EECON1, 0) + op("movff", EEDATA, FILE)
    loop = op("btfsc", EECON1, 1) + op("bra", -2)
    chip = Chip(
        program(
            op("bsf", EECON1, 2),
            write(EEADR, 7),
            write(EEDATA, 0x42),
            UNLOCK,
            op("bsf", EECON1, 1),
            loop,
            read,
        )
    )
    chip.run(47_900)
    assert chip.peek(EECON1) & 2
    chip.run(200)
    assert not chip.peek(EECON1) & 2
    assert chip.peek(FILE) == 0x42


def test_registers_without_a_model_are_noted() -> None:
    chip = Chip(program(write(0xFAD, 1), op("nop")))  # TXREG
    chip.run(3)
    assert chip.unmodelled() == [0xFAD]
