/* An INA219 as its I2C bus sees it, from the data sheet alone (Texas Instruments SBOS448G).
 *
 * Written apart from power/emulated/ina219/chip.py, so that each is a check of the other.
 */
#ifndef INA219_H
#define INA219_H

#include <stdint.h>

typedef struct {
  double shunt_uv, bus_mv;           /* at its pins */
  double swing_uv, half_period_us;   /* the shunt voltage alternates by this much; 0: it does not */
  double slow;                       /* conversions take so much longer than typical, e.g. 1.1 */
  uint16_t config, calibration;
  int32_t shunt, bus, current, power; /* results; the bus in its LSB of 4 mV, without the flags */
  int ready, overflow;                /* CNVR and OVF */
  int converting;
  double begun_us;
} ina219;

void ina219_power_on(ina219 *chip, double now_us);
void ina219_write(ina219 *chip, unsigned reg, uint16_t value, double now_us);
uint16_t ina219_read(ina219 *chip, unsigned reg, double now_us);

#endif
