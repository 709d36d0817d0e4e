/* The chip's USB as seen from the bus. One transaction is a look whether the chip would answer, and, some bus time
 * later, the exchange itself. */
#ifndef USB_H
#define USB_H

#include "pic18.h"

enum { USB_NAK = -1, USB_STALL = -2, USB_SILENT = -3, USB_TIMEOUT = -4, USB_FAULT = -5 };
enum { USB_PACKET_BYTES = 64 };
enum { USB_PID_OUT = 0x1, USB_PID_IN = 0x9, USB_PID_SETUP = 0xD };

bool usb_attached(const pic *p);
void usb_bus_reset(pic *p);
int usb_peek_in(pic *p, int address, int endpoint); /* bytes the chip would send, or a reason why not */
int usb_take_in(pic *p, int endpoint, uint8_t *data, int *toggle);
int usb_peek_out(pic *p, int address, int endpoint, bool setup); /* 0, or a reason why not */
void usb_give_out(pic *p, int endpoint, bool setup, int toggle, const uint8_t *data, int size);

#endif
