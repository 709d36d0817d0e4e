#include "ina219.h"

#include <math.h>

enum { CONFIG, SHUNT, BUS, POWER, CURRENT, CALIBRATION };

static double slowness(const ina219 *chip) { return chip->slow > 0 ? chip->slow : 1.0; }

/* Section 8.6.2.1, table 5: conversion time of a SADC or BADC setting. */
static double adc_us(const ina219 *chip, unsigned code, int *conversions, int *step) {
  static const double single_us[4] = {84, 148, 276, 532};
  *conversions = (code & 8) ? 1 << (code & 7) : 1;
  *step = (code & 8) ? 1 : 8 >> (code & 3);
  return slowness(chip) * ((code & 8) ? 532.0 : single_us[code & 3]);
}

/* Mode bits: 1 the shunt is converted, 2 the bus is, 4 again and again. */
static double pair_us(const ina219 *chip) {
  int n, step;
  double total = 0, one = adc_us(chip, chip->config >> 3 & 15u, &n, &step);
  if (chip->config & 1) total += one * n;
  one = adc_us(chip, chip->config >> 7 & 15u, &n, &step);
  if (chip->config & 2) total += one * n;
  return total;
}

static int32_t within(double value, int32_t low, int32_t high) {
  return value < low ? low : value > high ? high : (int32_t)value;
}

static double shunt_uv_at(const ina219 *chip, double t_us) {
  const int high = chip->half_period_us > 0 && (int64_t)floor(t_us / chip->half_period_us) % 2 != 0;
  return chip->shunt_uv + (high ? chip->swing_uv : 0);
}

static void convert(ina219 *chip, double begun_us) {
  int n, step, i;
  const int32_t range = 4000 << (chip->config >> 11 & 3);
  if (chip->config & 1) {
    const double one_us = adc_us(chip, chip->config >> 3 & 15u, &n, &step);
    double sum = 0;
    for (i = 0; i < n; i++) {
      const double lsb = shunt_uv_at(chip, begun_us + (i + 0.5) * one_us) / 10.0;
      sum += within(rint(lsb / step) * step, -range, range);
    }
    chip->shunt = (int32_t)rint(sum / n);
  }
  if (chip->config & 2) {
    adc_us(chip, chip->config >> 7 & 15u, &n, &step);
    chip->bus = within(rint(chip->bus_mv / 4.0 / step) * step, 0, chip->config & 0x2000 ? 8000 : 4000);
  }
  /* Equations 4 and 5: the registers are computed with each conversion. */
  const double current = trunc((double)chip->shunt * chip->calibration / 4096.0);
  const double power = trunc(fabs(current) * chip->bus / 5000.0);
  chip->overflow = fabs(current) > 32767 || power > 65535;
  chip->current = within(current, -32768, 32767);
  chip->power = within(power, 0, 65535);
  chip->ready = 1;
}

static void let_time_pass(ina219 *chip, double now_us) {
  const double pair = pair_us(chip);
  /* A nanosecond's grace: sums of times are not exact in binary. */
  if (!chip->converting || now_us + 1e-3 < chip->begun_us + pair) return;
  if (!(chip->config & 4)) {
    convert(chip, chip->begun_us);
    chip->converting = 0;
    return;
  }
  const double ended = floor((now_us + 1e-3 - chip->begun_us) / pair);
  convert(chip, chip->begun_us + (ended - 1) * pair);
  chip->begun_us += ended * pair;
}

void ina219_power_on(ina219 *chip, double now_us) {
  chip->config = 0x399F;
  chip->calibration = 0;
  chip->shunt = chip->bus = chip->current = chip->power = 0;
  chip->ready = chip->overflow = 0;
  chip->converting = 1;
  chip->begun_us = now_us;
}

void ina219_write(ina219 *chip, unsigned reg, uint16_t value, double now_us) {
  let_time_pass(chip, now_us);
  if (reg == CALIBRATION) {
    chip->calibration = value & 0xFFFEu; /* bit 0 is void, section 8.6.4.1 */
  } else if (reg == CONFIG && value & 0x8000u) {
    ina219_power_on(chip, now_us);
  } else if (reg == CONFIG) {
    chip->config = value;
    chip->ready = 0;
    chip->converting = (value & 3) != 0;
    chip->begun_us = now_us;
  }
}

uint16_t ina219_read(ina219 *chip, unsigned reg, double now_us) {
  let_time_pass(chip, now_us);
  switch (reg) {
    case CONFIG: return chip->config;
    case SHUNT: return (uint16_t)chip->shunt;
    case BUS: return (uint16_t)(chip->bus << 3 | (chip->ready ? 2 : 0) | (chip->overflow ? 1 : 0));
    case POWER: chip->ready = 0; return (uint16_t)chip->power; /* section 8.6.3.2: clears CNVR */
    case CURRENT: return (uint16_t)chip->current;
    default: return chip->calibration;
  }
}
