#include "twi.h"

#include <simavr/sim_interrupts.h>
#include <simavr/sim_io.h>
#include <stdlib.h>
#include <string.h>

/* ATmega328P data sheet (DS40002061B), section 22.9: registers, and the bits of TWCR. */
enum { TWBR = 0xB8, TWSR = 0xB9, TWDR = 0xBB, TWCR = 0xBC };
enum { TWINT = 0x80, TWEA = 0x40, TWSTA = 0x20, TWSTO = 0x10, TWEN = 0x04, TWIE = 0x01 };
enum { TWI_VECTOR = 24, ADDRESS = 0x40 };

/* Status codes, tables 22-3 and 22-4. */
enum {
  START = 0x08, REPEATED_START = 0x10,
  ADDRESS_W_ACK = 0x18, ADDRESS_W_NACK = 0x20, SENT_ACK = 0x28, SENT_NACK = 0x30,
  ADDRESS_R_ACK = 0x40, ADDRESS_R_NACK = 0x48, GOT_ACK = 0x50, GOT_NACK = 0x58, IDLE = 0xF8
};

double now_us(const avr_t *avr) { return (double)avr->cycle * 1e6 / avr->frequency; }

/* Section 22.5.2: SCL frequency = CPU clock / (16 + 2 TWBR x 4^TWPS). */
static unsigned bit_cycles(const avr_t *avr) {
  return 16u + 2u * avr->data[TWBR] * (1u << 2 * (avr->data[TWSR] & 3));
}

unsigned scl_hz(const avr_t *avr) { return avr->frequency / bit_cycles(avr); }

static avr_cycle_count_t finish(avr_t *avr, avr_cycle_count_t when, void *param) {
  twi_bus *bus = param;
  if (bus->held) return when + bit_cycles(avr); /* the master waits for its wires */
  avr->data[TWSR] = (uint8_t)((avr->data[TWSR] & 3) | bus->next_status);
  avr_raise_interrupt(avr, bus->vector);
  return 0;
}

static void after(twi_bus *bus, unsigned bits, uint8_t status) {
  bus->next_status = status;
  avr_cycle_timer_register(bus->avr, bits * bit_cycles(bus->avr), finish, bus);
}

static avr_cycle_count_t stopped(avr_t *avr, avr_cycle_count_t when, void *param) {
  (void)when;
  (void)param;
  avr->data[TWCR] &= (uint8_t)~TWSTO;
  return 0;
}

static void stop(twi_bus *bus) {
  if (bus->here && bus->sent_count == 3)
    ina219_write(&bus->chip, bus->pointer, (uint16_t)(bus->sent[1] << 8 | bus->sent[2]), now_us(bus->avr));
  bus->here = bus->begun = 0;
  bus->sent_count = 0;
  bus->transfers++;
  avr_cycle_timer_register(bus->avr, bit_cycles(bus->avr), stopped, bus);
}

static uint8_t address(twi_bus *bus, uint8_t byte) {
  bus->here = byte >> 1 == ADDRESS && !bus->absent;
  bus->sent_count = bus->read_count = 0;
  if (byte & 1) {
    if (bus->here) bus->answer = ina219_read(&bus->chip, bus->pointer, now_us(bus->avr));
    return bus->here ? ADDRESS_R_ACK : ADDRESS_R_NACK;
  }
  return bus->here ? ADDRESS_W_ACK : ADDRESS_W_NACK;
}

static uint8_t take(twi_bus *bus, uint8_t byte) {
  if (bus->absent) bus->here = 0; /* unplugged in the middle */
  if (!bus->here) return SENT_NACK;
  if (bus->sent_count < 3) bus->sent[bus->sent_count++] = byte;
  bus->pointer = bus->sent[0];
  return SENT_ACK;
}

static uint8_t give(twi_bus *bus) {
  const unsigned place = bus->read_count++;
  if (!bus->here || bus->absent || place > 1) return 0xFF; /* nobody pulls the wire down */
  return (uint8_t)(place ? bus->answer : bus->answer >> 8);
}

static void go_on(twi_bus *bus, uint8_t control) {
  avr_t *avr = bus->avr;
  switch (avr->data[TWSR] & 0xF8) {
    case START:
    case REPEATED_START: after(bus, 9, address(bus, avr->data[TWDR])); break;
    case ADDRESS_W_ACK:
    case SENT_ACK: after(bus, 9, take(bus, avr->data[TWDR])); break;
    case ADDRESS_R_ACK:
    case GOT_ACK:
      avr->data[TWDR] = give(bus);
      after(bus, 9, control & TWEA ? GOT_ACK : GOT_NACK);
      break;
    default: break;
  }
}

static void write_control(avr_t *avr, avr_io_addr_t addr, uint8_t value, void *param) {
  twi_bus *bus = param;
  const uint8_t raised = avr->data[TWCR] & TWINT;
  avr->data[addr] = (uint8_t)((value & (TWEA | TWSTA | TWSTO | TWEN | TWIE)) | (value & TWINT ? 0 : raised));
  if (!(value & TWEN)) {
    twi_reset(bus);
    avr->data[addr] = 0;
    return;
  }
  if (!(value & TWINT)) return; /* writing a one clears the flag and begins what the other bits say */
  avr_clear_interrupt(avr, bus->vector);
  if (value & TWSTO) {
    stop(bus);
  } else if (value & TWSTA) {
    after(bus, 1, bus->begun ? REPEATED_START : START);
    bus->begun = 1;
  } else {
    go_on(bus, value);
  }
}

static void write_plain(avr_t *avr, avr_io_addr_t addr, uint8_t value, void *param) {
  (void)param;
  avr->data[addr] = value;
}

void twi_reset(twi_bus *bus) {
  avr_cycle_timer_cancel(bus->avr, finish, bus);
  avr_cycle_timer_cancel(bus->avr, stopped, bus);
  avr_clear_interrupt(bus->avr, bus->vector);
  bus->avr->data[TWSR] = (uint8_t)((bus->avr->data[TWSR] & 3) | IDLE);
  bus->begun = bus->here = 0;
}

void twi_connect(twi_bus *bus, avr_t *avr) {
  bus->avr = avr;
  for (unsigned i = 0; i < avr->interrupts.vector_count; i++)
    if (avr->interrupts.vector[i]->vector == TWI_VECTOR) bus->vector = avr->interrupts.vector[i];
  if (!bus->vector) abort();
  avr->io[AVR_DATA_TO_IO(TWCR)].w.c = write_control;
  avr->io[AVR_DATA_TO_IO(TWCR)].w.param = bus;
  avr->io[AVR_DATA_TO_IO(TWDR)].w.c = write_plain;
  ina219_power_on(&bus->chip, 0);
}
