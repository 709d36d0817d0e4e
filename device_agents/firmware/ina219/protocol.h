/* Serial protocol of the joulefleet INA219 meter, version 1: checksums, lines, commands, register words.
 *
 * Plain C99 without any hardware or standard I/O, so that the same code runs on an 8-bit microcontroller
 * and in the host's tests. The protocol is described in power/wire/ina219/frames.py.
 */
#ifndef JOULEFLEET_INA219_PROTOCOL_H
#define JOULEFLEET_INA219_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define INA_LINE_MAX 51    /* longest data, ping or counter line, with its newline */
#define INA_HEADER_MAX 420 /* longest header line, with its newline */

/* Registers of the INA219 (TI SBOS448G, section 8.6). */
enum {
  INA_REG_CONFIG = 0,
  INA_REG_SHUNT = 1,
  INA_REG_BUS = 2,
  INA_REG_POWER = 3,
  INA_REG_CURRENT = 4,
  INA_REG_CALIBRATION = 5
};
enum { INA_BUS_OVF = 0x1, INA_BUS_CNVR = 0x2 };

/* Gain divider of the shunt amplifier: full scale 40, 80, 160 or 320 mV. */
enum { INA_PGA_1 = 0, INA_PGA_2 = 1, INA_PGA_4 = 2, INA_PGA_8 = 3 };

/* Resolution and averaging of a converter; averages are of 12-bit conversions. */
enum {
  INA_ADC_9BIT = 0x0,
  INA_ADC_10BIT = 0x1,
  INA_ADC_11BIT = 0x2,
  INA_ADC_12BIT = 0x3,
  INA_ADC_AVG_2 = 0x9,
  INA_ADC_AVG_4 = 0xA,
  INA_ADC_AVG_8 = 0xB,
  INA_ADC_AVG_16 = 0xC,
  INA_ADC_AVG_32 = 0xD,
  INA_ADC_AVG_64 = 0xE,
  INA_ADC_AVG_128 = 0xF
};

/* Flags of a data line. */
enum {
  INA_FLAG_OVF = 0x01,
  INA_FLAG_CNVR = 0x02,
  INA_FLAG_I2C_ERROR = 0x04,
  INA_FLAG_CAL_LOST = 0x08,
  INA_FLAG_SYNC = 0x10,
  INA_FLAG_RESET = 0x20,
  INA_FLAG_OVERRUN = 0x40
};

typedef struct {
  const char *fw;  /* version of the sketch */
  const char *uid; /* serial number of the board */
  char grade;      /* 'A' or 'B', as printed on the chip's order code */
  uint8_t addr;
  uint32_t rshunt_uohm;
  uint32_t rshunt_tol_ppm;
  uint16_t config;
  uint16_t cal;
  uint32_t period_us;
  uint32_t run;
  uint32_t t_us;
} ina_header;

typedef struct {
  uint32_t seq;
  uint32_t t_us;
  int16_t shunt_raw;
  uint16_t bus_raw;
  uint8_t flags;
} ina_sample;

typedef struct {
  uint32_t overruns;
  uint32_t i2c_errors;
  uint32_t resets;
  uint32_t late;
} ina_counters;

typedef enum {
  INA_NOTHING = 0,
  INA_ASK_HEADER,
  INA_PING,
  INA_ASK_COUNTERS,
  INA_RUN,
  INA_STOP
} ina_command_kind;

typedef struct {
  ina_command_kind kind;
  uint32_t nonce; /* of a ping */
} ina_command;

/* Collects one command line. Start with all zeros. */
typedef struct {
  char line[16];
  uint8_t length; /* sizeof line + 1: too long, ignored up to its newline */
} ina_reader;

/* CRC-16/CCITT-FALSE: polynomial 0x1021, initial value 0xFFFF; "123456789" gives 0x29B1. */
uint16_t ina_crc16(const char *data, size_t length);

/* Each writes one line with checksum and newline and returns its length, or 0 if it does not fit. */
size_t ina_format_header(char *out, size_t size, const ina_header *header);
size_t ina_format_sample(char *out, size_t size, const ina_sample *sample);
size_t ina_format_pong(char *out, size_t size, uint32_t nonce, uint32_t t_rx_us, uint32_t t_tx_us);
size_t ina_format_counters(char *out, size_t size, const ina_counters *counters);

/* Takes one received byte; returns a command when it completes one. */
ina_command ina_read(ina_reader *reader, char byte);

/* Configuration register for continuous conversion of shunt and bus. */
uint16_t ina_config_word(int bus_32v, int pga, int bus_adc, int shunt_adc);

/* Typical time of one shunt and one bus conversion under a configuration. */
uint32_t ina_period_us(uint16_t config);

/* Follows the chip's conversions, which keep their own time. Start with both times the same. */
typedef struct {
  uint32_t ended_us; /* when the last conversion ended, as far as is known */
  uint32_t busy_us;  /* when a poll last found one still under way */
} ina_pace;

/* A conversion was found ended at `now_us`. Returns how many ended since the last one, at least 1. */
uint32_t ina_count(ina_pace *pace, uint32_t now_us, uint32_t period_us);

#ifdef __cplusplus
}
#endif

#endif
