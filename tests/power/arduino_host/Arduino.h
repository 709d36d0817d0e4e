// Just enough of Arduino for the host to compile and run our sketch: time, and a serial port on a pty.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { LOW = 0, HIGH = 1, INPUT = 0 };

unsigned long micros();
void pinMode(uint8_t pin, uint8_t mode);
int digitalRead(uint8_t pin);

class HostSerial {
 public:
  void begin(unsigned long baud);
  int available();
  int read();
  int availableForWrite();
  size_t write(const uint8_t *data, size_t size);
};
extern HostSerial Serial;

void setup();
void loop();
