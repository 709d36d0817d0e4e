/* See host.c. The functions below are what Python calls. */
#ifndef HOST_H
#define HOST_H

#include "board.h"
#include "usb.h"

typedef struct {
    pic chip;
    struct board board;
    int address;          /* what SET_ADDRESS gave the device */
    int control_bytes;    /* largest packet of endpoint 0, from the device descriptor */
    uint64_t poll_cycles; /* how long the host waits after a NAK */
    uint64_t repeated;    /* packets dropped because of their toggle */
    int toggle[16][2];
} host;

/* Each returns a number of bytes, or a USB_ reason. Deadlines are cycle numbers. */
int host_in(host *h, int endpoint, uint8_t *data, uint64_t deadline);
int host_out(host *h, int endpoint, const uint8_t *data, int size, uint64_t deadline);
int host_control(host *h, const uint8_t setup[8], uint8_t *data, uint64_t deadline);
void host_bus_reset(host *h);

#endif
