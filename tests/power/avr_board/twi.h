/* The two-wire master of an ATmega328P with an INA219 on its bus, in place of simavr's own.
 *
 * simavr 1.6 lets one bit take a microsecond whatever the bus speed is set to, and never waits for an address
 * to be written. How fast the sketch can read is one of the claims under test, so bits take their time here.
 */
#ifndef TWI_H
#define TWI_H

#include <simavr/sim_avr.h>

#include "ina219.h"

typedef struct {
  avr_t *avr;
  avr_int_vector_t *vector;
  ina219 chip;
  int absent; /* nobody acknowledges the address */
  int held;   /* a wire is held low: what the master begins does not end before it is let go */
  int begun;  /* between START and STOP */
  int here;   /* the chip was addressed */
  uint8_t next_status, pointer, sent[3];
  unsigned sent_count, read_count;
  uint16_t answer;
  unsigned transfers;
} twi_bus;

void twi_connect(twi_bus *bus, avr_t *avr);
void twi_reset(twi_bus *bus);
double now_us(const avr_t *avr);
unsigned scl_hz(const avr_t *avr);

#endif
