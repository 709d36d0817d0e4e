// Runs the sketch on the host. Usage: host START_US SHUNT_RAW BUS_LSB RESET_AT_MS
//
// Prints the pty that plays the serial port, then runs until standard input ends. The chip answers with the
// given readings; its registers are written from the data sheet (TI SBOS448G), not from our emulator, so
// that the sketch has a second opinion. It resets itself once, RESET_AT_MS after start (0: never).

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "Arduino.h"
#include "Wire.h"

HostSerial Serial;
HostWire Wire;

static uint64_t start_us, reset_at_us;
static int master = -1;

static uint64_t elapsed_us() {
  static uint64_t first;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const uint64_t us = (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
  if (!first) first = us;
  return us - first;
}

unsigned long micros() { return (uint32_t)(start_us + elapsed_us()); }
void pinMode(uint8_t, uint8_t) {}
int digitalRead(uint8_t) { return LOW; }

// ---- Serial -----------------------------------------------------------------------------------------

void HostSerial::begin(unsigned long) {}
int HostSerial::available() {
  struct pollfd ready = {master, POLLIN, 0};
  return poll(&ready, 1, 0) == 1 && (ready.revents & POLLIN) ? 1 : 0;
}
int HostSerial::read() {
  unsigned char byte = 0;
  return ::read(master, &byte, 1) == 1 ? byte : -1;
}
int HostSerial::availableForWrite() { return 4096; }
size_t HostSerial::write(const uint8_t *data, size_t size) {
  const ssize_t written = ::write(master, data, size);
  return written < 0 ? 0 : (size_t)written;
}

// ---- INA219 -----------------------------------------------------------------------------------------

static uint16_t config = 0x399F, calibration, shunt_raw, bus_lsb;
static uint8_t pointer, sent[3], sent_count;
static uint16_t answer;
static uint64_t begun_us;
static bool ready;

static uint64_t conversion_us() {
  static const int single[4] = {84, 148, 276, 532};
  uint64_t total = 0;
  for (int shift = 3; shift <= 7; shift += 4) {
    const int code = config >> shift & 0xF;
    total += code & 8 ? 532u << (code & 7) : single[code & 3];
  }
  return total;
}

static void let_time_pass() {
  const uint64_t now = elapsed_us();
  if (reset_at_us && now >= reset_at_us) {
    config = 0x399F;
    calibration = 0;
    ready = false;
    begun_us = now;
    reset_at_us = 0;
  }
  while (now - begun_us >= conversion_us()) {
    begun_us += conversion_us();
    ready = true;
  }
}

static uint16_t read_chip() {
  let_time_pass();
  switch (pointer) {
    case 0: return config;
    case 1: return shunt_raw;
    case 2: return (uint16_t)(bus_lsb << 3 | (ready ? 2 : 0));
    case 3: ready = false; return 0;
    case 5: return calibration;
    default: return 0;
  }
}

void HostWire::begin() {}
void HostWire::setClock(uint32_t) {}
void HostWire::beginTransmission(uint8_t) { sent_count = 0; }
void HostWire::write(uint8_t byte) {
  if (sent_count < sizeof sent) sent[sent_count++] = byte;
}
uint8_t HostWire::endTransmission() {
  pointer = sent[0];
  if (sent_count == 3) {
    let_time_pass();
    const uint16_t value = (uint16_t)(sent[1] << 8 | sent[2]);
    if (pointer == 0) {
      config = value;
      ready = false;
      begun_us = elapsed_us();
    } else if (pointer == 5) {
      calibration = value;
    }
  }
  return 0;
}
uint8_t HostWire::requestFrom(uint8_t, uint8_t count) {
  answer = read_chip();
  return count;
}
int HostWire::read() {
  const int byte = answer >> 8;
  answer = (uint16_t)(answer << 8);
  return byte;
}

// ---- Main -------------------------------------------------------------------------------------------

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  start_us = strtoull(argv[1], nullptr, 10);
  shunt_raw = (uint16_t)strtol(argv[2], nullptr, 10);
  bus_lsb = (uint16_t)strtol(argv[3], nullptr, 10);
  reset_at_us = 1000 * strtoull(argv[4], nullptr, 10);
  master = posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || grantpt(master) || unlockpt(master)) return 1;
  const char *path = ptsname(master);
  const int slave = open(path, O_RDWR | O_NOCTTY);  // keeps the line up between clients
  struct termios raw;
  tcgetattr(slave, &raw);
  cfmakeraw(&raw);
  tcsetattr(slave, TCSANOW, &raw);
  fcntl(master, F_SETFL, O_NONBLOCK);
  printf("%s\n", path);
  fflush(stdout);
  setup();
  for (;;) {
    loop();
    struct pollfd end = {0, POLLIN, 0};
    if (poll(&end, 1, 0) != 0) return 0;
    usleep(100);  // an I2C transfer takes as long
  }
}
