// joulefleet INA219 meter: reads an INA219 as fast as it converts and sends raw registers to the host.
// For 16 MHz Arduino AVR boards. Wiring and settings: README.md. The protocol itself is in protocol.c.

#include <Arduino.h>
#include <Wire.h>

#include "protocol.h"
#include "wire_timeout.h"

// ---- Settings -------------------------------------------------------------------------------------

static const uint32_t BAUD = 500000;  // exact on a 16 MHz AVR; the host's options.baud must agree
static const uint8_t ADDRESS = 0x40;  // A0 and A1 to ground
static const char GRADE = 'A';        // order code INA219A... or INA219B...
static const uint32_t RSHUNT_UOHM = 100000;    // R100
static const uint32_t RSHUNT_TOL_PPM = 10000;  // 1 %
static const int SYNC_PIN = -1;       // a GPIO that the measured device drives, or -1 for none
static const char *BOARD_UID = "ina219-1";  // serial number: give each board its own

// 32 V, 320 mV (3.2 A on 0.1 ohm). Four conversions of the shunt are averaged, one of the bus follows:
// 2.66 ms, 376 readings a second, and the current is integrated during 80 % of the time.
static const uint16_t CONFIG = ina_config_word(1, INA_PGA_8, INA_ADC_12BIT, INA_ADC_AVG_4);

// Our host computes the current itself. A calibration that is not 0 betrays a reset, which clears it.
static const uint16_t CALIBRATION = 4096;

static const char *FIRMWARE = "1.1.0";
static const uint32_t COUNTERS_PERIOD_US = 1000000;
static const uint32_t WIRE_LIMIT_US = 3000;  // a register takes 0.15 ms

// ---- State ----------------------------------------------------------------------------------------

static ina_reader reader;
static ina_counters counters;
static uint32_t period_us;
static uint32_t run_number;
static bool running;
static uint32_t seq;
static ina_pace pace;
static uint32_t counters_us;
static uint8_t pending_flags;      // RESET and OVERRUN, for the next line that gets through
static uint8_t pointer = 0xFF;     // the register that the chip will send next; 0xFF: not known

// ---- The chip -------------------------------------------------------------------------------------

static bool write_register(uint8_t address, uint16_t value) {
  pointer = 0xFF;
  Wire.beginTransmission(ADDRESS);
  Wire.write(address);
  Wire.write((uint8_t)(value >> 8));
  Wire.write((uint8_t)(value & 0xFF));
  return Wire.endTransmission() == 0;
}

// The chip keeps its register pointer, so polling one register again takes half the time.
static bool point_to(uint8_t address) {
  if (pointer == address) {
    return true;
  }
  pointer = 0xFF;
  Wire.beginTransmission(ADDRESS);
  Wire.write(address);
  if (Wire.endTransmission(false) != 0) {  // no stop: the read follows with a repeated start
    return false;
  }
  pointer = address;
  return true;
}

static bool read_register(uint8_t address, uint16_t *value) {
  if (!point_to(address) || Wire.requestFrom(ADDRESS, (uint8_t)2) != 2) {
    pointer = 0xFF;
    return false;
  }
  const uint8_t high = (uint8_t)Wire.read();
  const uint8_t low = (uint8_t)Wire.read();
  *value = (uint16_t)(high << 8 | low);
  return true;
}

static bool set_up_chip() {
  return write_register(INA_REG_CALIBRATION, CALIBRATION) && write_register(INA_REG_CONFIG, CONFIG);
}

// ---- Lines to the host ----------------------------------------------------------------------------

static void send_header() {
  static char line[INA_HEADER_MAX];
  const ina_header header = {FIRMWARE, BOARD_UID,   GRADE,     ADDRESS,    RSHUNT_UOHM,       RSHUNT_TOL_PPM,
                             CONFIG,   CALIBRATION, period_us, run_number, (uint32_t)micros()};
  Serial.write((const uint8_t *)line, ina_format_header(line, sizeof line, &header));
}

// Never waits: a line that does not fit is counted, so that the next conversion is not missed too.
static bool send_if_it_fits(const char *line, size_t length) {
  if (Serial.availableForWrite() < (int)length) {
    return false;
  }
  Serial.write((const uint8_t *)line, length);
  return true;
}

static void send_counters() {
  char line[INA_LINE_MAX];
  send_if_it_fits(line, ina_format_counters(line, sizeof line, &counters));
}

static void send_pong(uint32_t nonce, uint32_t t_rx_us) {
  char line[INA_LINE_MAX];
  Serial.write((const uint8_t *)line, ina_format_pong(line, sizeof line, nonce, t_rx_us, micros()));
}

static void send_sample(const ina_sample *sample) {
  char line[INA_LINE_MAX];
  if (send_if_it_fits(line, ina_format_sample(line, sizeof line, sample))) {
    pending_flags = 0;
  } else {
    counters.overruns++;
    pending_flags |= INA_FLAG_OVERRUN | (sample->flags & INA_FLAG_RESET);
  }
}

// ---- Sampling -------------------------------------------------------------------------------------

static void start_run() {
  set_up_chip();
  run_number++;
  counters = ina_counters();
  seq = 0;
  running = true;
  pending_flags = 0;
  send_header();
  counters_us = micros();
  pace.ended_us = pace.busy_us = counters_us;
}

// Numbers the conversion that ended, counting those that went by unread, and stamps it with its end.
static void finish_sample(ina_sample *sample, uint32_t now_us) {
  const uint32_t missed = ina_count(&pace, now_us, period_us) - 1;
  counters.late += missed;
  seq += missed;
  sample->seq = seq++;
  sample->t_us = pace.ended_us;
  sample->flags |= pending_flags;
  if (SYNC_PIN >= 0 && digitalRead((uint8_t)SYNC_PIN) == HIGH) {
    sample->flags |= INA_FLAG_SYNC;
  }
  send_sample(sample);
}

static void sample_chip() {
  ina_sample sample = {0, 0, 0, 0, 0};
  uint16_t shunt = 0, power = 0, calibration = 0;
  const uint32_t now_us = micros();
  const uint32_t waited_us = now_us - pace.ended_us;
  if (!read_register(INA_REG_BUS, &sample.bus_raw)) {
    if (waited_us >= period_us) {
      counters.i2c_errors++;
      sample.flags = INA_FLAG_I2C_ERROR;
      finish_sample(&sample, now_us);
    }
    return;
  }
  if (!(sample.bus_raw & INA_BUS_CNVR) && waited_us < 2 * period_us) {
    pace.busy_us = now_us;
    return;
  }
  // Reading the power register clears CNVR by the data sheet; on some chips reading the bus did already.
  bool answered = read_register(INA_REG_SHUNT, &shunt) && read_register(INA_REG_POWER, &power);
  if (answered && power == 0) {  // the chip computes a power only while it has a calibration
    answered = read_register(INA_REG_CALIBRATION, &calibration);
  }
  sample.shunt_raw = (int16_t)shunt;
  sample.flags = (uint8_t)(sample.bus_raw & (INA_BUS_CNVR | INA_BUS_OVF));
  if (!answered) {
    counters.i2c_errors++;
    sample.flags |= INA_FLAG_I2C_ERROR;
  } else if (power == 0 && calibration == 0) {
    sample.flags |= INA_FLAG_CAL_LOST;
  }
  finish_sample(&sample, now_us);
  if (sample.flags & INA_FLAG_CAL_LOST) {
    counters.resets++;
    set_up_chip();
    pending_flags |= INA_FLAG_RESET;
  }
}

// ---- Arduino --------------------------------------------------------------------------------------

static void obey(ina_command command, uint32_t t_rx_us) {
  switch (command.kind) {
    case INA_ASK_HEADER: send_header(); break;
    case INA_PING: send_pong(command.nonce, t_rx_us); break;
    case INA_ASK_COUNTERS: send_counters(); break;
    case INA_RUN: start_run(); break;
    case INA_STOP: running = false; break;
    case INA_NOTHING: break;
  }
}

void setup() {
  Serial.begin(BAUD);
  Wire.begin();
  Wire.setClock(400000);
  limit_wire_waits(Wire, WIRE_LIMIT_US, 0);
  if (SYNC_PIN >= 0) {
    pinMode((uint8_t)SYNC_PIN, INPUT);
  }
  period_us = ina_period_us(CONFIG);
  set_up_chip();
  send_header();
}

void loop() {
  while (Serial.available() > 0) {
    const char byte_read = (char)Serial.read();
    obey(ina_read(&reader, byte_read), micros());
  }
  if (!running) {
    return;
  }
  sample_chip();
  if (micros() - counters_us >= COUNTERS_PERIOD_US) {
    counters_us = micros();
    send_counters();
  }
}
