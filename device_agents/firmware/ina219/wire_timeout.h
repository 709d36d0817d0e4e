// A bound for every wait of the I2C library, where it has one (Arduino AVR from 1.8.3 on; others bring their own).
// Without it a wire that is held low stops the sketch for good, and it no longer answers the host.
#ifndef JOULEFLEET_WIRE_TIMEOUT_H
#define JOULEFLEET_WIRE_TIMEOUT_H

#include <stdint.h>

template <typename Library>
auto limit_wire_waits(Library &wire, uint32_t limit_us, int) -> decltype(wire.setWireTimeout(limit_us, true)) {
  wire.setWireTimeout(limit_us, true);
}

template <typename Library>
void limit_wire_waits(Library &, uint32_t, long) {}

#endif
