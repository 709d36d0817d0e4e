"""The USB engine of the simulated chip: descriptors, toggles, the queue of completed transactions."""

from __future__ import annotations

import pytest

from tests.firmware.assembler import op, program
from tests.firmware.chip import Chip, Stalled

UIR, USTAT, UCON, UCFG, UEP0, UADDR = 0xF68, 0xF6C, 0xF6D, 0xF6F, 0xF70, 0xF6E
TRNIF, PKTDIS, USBEN = 0x08, 0x10, 0x08
UOWN, DTS, DTSEN, BSTALL = 0x80, 0x40, 0x08, 0x04
SOON = 2000


def attached(ping_pong: int, *, body: list[int] | None = None) -> Chip:
    """A chip whose program does nothing; the test arms the descriptors itself."""
    chip = Chip(program(op("movlw", USBEN), op("movwf", UCON), body or [], op("bra", -1)))
    chip.run(4)
    chip.poke(UCFG, ping_pong)
    for endpoint in (0, 1, 3):
        chip.poke(UEP0 + endpoint, 0x1E)
    return chip


def arm(chip: Chip, descriptor: int, status: int, size: int, address: int, data: bytes = b"") -> None:
    for offset, value in enumerate((status, size, address & 0xFF, address >> 8)):
        chip.poke(descriptor + offset, value)
    for offset, value in enumerate(data):
        chip.poke(address + offset, value)


@pytest.mark.parametrize(
    ("ping_pong", "descriptors"),
    # DS39632, table 17-4: where IN of endpoint 1 is, even and odd buffer
    [(0, (0x40C,)), (1, (0x410,)), (2, (0x418, 0x41C)), (3, (0x410, 0x414))],
)
def test_descriptors_of_endpoint_1(ping_pong: int, descriptors: tuple[int, ...]) -> None:
    chip = attached(ping_pong)
    for odd, descriptor in enumerate(descriptors):
        arm(chip, descriptor, UOWN | (DTS if odd else 0), 3, 0x500, bytes([1, 2, odd]))
        assert chip.read(1, chip.cycles + SOON) == bytes([1, 2, odd])
        assert chip.peek(descriptor) & (UOWN | 0x3C) == 0x9 << 2  # given back, with the token IN
        assert chip.peek(UIR) & TRNIF
    assert chip.peek(USTAT) == 1 << 3 | 1 << 2  # endpoint 1, IN, even: the oldest that was not acknowledged


def test_nothing_armed_is_a_nak_and_the_wrong_toggle_a_repetition() -> None:
    chip = attached(0)
    assert chip.read(1, chip.cycles + SOON) is None
    arm(chip, 0x40C, UOWN | DTS, 1, 0x500, b"x")  # DATA1 where the host expects DATA0
    assert chip.read(1, chip.cycles + SOON) is None


def test_a_stalled_endpoint() -> None:
    chip = attached(0)
    arm(chip, 0x40C, UOWN | BSTALL, 1, 0x500)
    with pytest.raises(Stalled):
        chip.read(1, chip.cycles + SOON)


def test_out_packets_follow_the_toggle() -> None:
    chip = attached(0)
    arm(chip, 0x408, UOWN | DTSEN, 64, 0x500)
    chip.write(1, b"first")
    assert bytes(chip.peek(0x500 + i) for i in range(5)) == b"first"
    assert (chip.peek(0x409), chip.peek(0x408) & 0x3C) == (5, 0x1 << 2)
    arm(chip, 0x408, UOWN | DTSEN, 64, 0x500)  # DATA0 again, but the host sends DATA1 now
    chip.write(1, b"other")
    assert bytes(chip.peek(0x500 + i) for i in range(5)) == b"first"
    assert chip.peek(0x408) & UOWN


def test_four_transactions_wait_for_the_firmware_and_the_fifth_is_refused() -> None:
    chip = attached(0)
    for number in range(4):
        arm(chip, 0x40C, UOWN | (DTS if number % 2 else 0), 1, 0x500, b"x")
        assert chip.read(1, chip.cycles + SOON) == b"x"
    arm(chip, 0x40C, UOWN, 1, 0x500, b"x")
    assert chip.read(1, chip.cycles + SOON) is None


def test_setup_disables_packets_until_the_firmware_allows_them() -> None:
    chip = attached(0)
    arm(chip, 0x400, UOWN | BSTALL, 8, 0x500)  # a setup packet is taken even by a stalled endpoint
    arm(chip, 0x404, UOWN | DTS, 0, 0x510)
    with pytest.raises(TimeoutError):
        chip.control(0x40, 1, 2, 3, b"", timeout_s=0.001)
    assert chip.peek(UCON) & PKTDIS
    assert bytes(chip.peek(0x500 + i) for i in range(8)) == bytes([0x40, 1, 2, 0, 3, 0, 0, 0])
    assert chip.peek(0x400) & 0x3C == 0xD << 2


def test_another_address_is_not_answered() -> None:
    chip = attached(0)
    arm(chip, 0x40C, UOWN, 1, 0x500, b"x")
    chip.poke(UADDR, 5)
    with pytest.raises(TimeoutError):
        chip.read(1, chip.cycles + SOON)
