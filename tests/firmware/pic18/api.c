/* What Python calls through ctypes, see ../chip.py. */
#include "host.h"

#include <stdlib.h>
#include <string.h>

host *unit_new(int board, const uint8_t *flash, const uint8_t *eeprom)
{
    host *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    memcpy(h->chip.flash, flash, PIC_FLASH_BYTES);
    memcpy(h->chip.eeprom, eeprom, PIC_EEPROM_BYTES);
    memset(h->board.pins, 0xFF, sizeof h->board.pins);
    h->board.kind = board;
    h->chip.board = &h->board;
    h->control_bytes = 8;
    h->poll_cycles = 600;
    pic_power_up(&h->chip);
    return h;
}

void unit_free(host *h) { free(h); }

/* ---- the chip ---- */

void unit_run(host *h, uint64_t until) { pic_run(&h->chip, until); }
uint64_t unit_now(const host *h) { return h->chip.now; }
uint32_t unit_pc(const host *h) { return h->chip.pc; }
const char *unit_fault(const host *h) { return h->chip.fault; }
uint8_t unit_peek(const host *h, int address) { return h->chip.ram[address & 0xFFF]; }
void unit_poke(host *h, int address, uint8_t value) { h->chip.ram[address & 0xFFF] = value; }
uint8_t unit_eeprom(const host *h, int address) { return h->chip.eeprom[address & 0xFF]; }
int unit_unmodelled(const host *h, int address) { return h->chip.unmodelled[address & 0xFF]; }

/* ---- the bus ---- */

int unit_attached(const host *h) { return usb_attached(&h->chip); }

void unit_set_address(host *h, int address, int control_bytes)
{
    h->address = address;
    h->control_bytes = control_bytes;
}

void unit_set_poll(host *h, uint64_t cycles) { h->poll_cycles = cycles; }

/* ---- the board ---- */

void unit_set_pins(host *h, int port, uint8_t levels) { h->board.pins[port] = levels; }

void unit_set_current(host *h, int channel, int range, int state, uint16_t reading)
{
    h->board.current[channel][range][state] = reading;
}

void unit_set_voltage(host *h, int range, int input, uint16_t reading) { h->board.voltage[range][input] = reading; }
void unit_set_temperature(host *h, uint16_t word) { h->board.temperature = word; }

/* The registers behind port D of an HVPM (0 to 2), or the shift register of an LVPM (3). */
int unit_output(const host *h, int which) { return which < 3 ? h->board.latch[which] : h->board.outputs; }
