// The I2C bus of the host's Arduino, with one INA219 on it.
#pragma once

#include <stdint.h>

class HostWire {
 public:
  void begin();
  void setClock(uint32_t hertz);
  void beginTransmission(uint8_t address);
  void write(uint8_t byte);
  uint8_t endTransmission();
  uint8_t requestFrom(uint8_t address, uint8_t count);
  int read();
};
extern HostWire Wire;
