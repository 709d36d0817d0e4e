/* A USB host with one device: enumerated by its caller, polled at a steady pace, toggles kept. */
#include "host.h"
#include "sfr.h"

#include <string.h>

typedef uint8_t u8;

/* Bit times of a full-speed transaction without its payload: token, gaps, data packet, handshake. A bit time is an
 * instruction cycle, 1/12 us. */
enum { TRANSACTION_CYCLES = 101, REFUSAL_CYCLES = 62 };

static int wait_cycles(host *h, uint64_t cycles)
{
    pic_run(&h->chip, h->chip.now + cycles);
    return h->chip.fault[0] ? USB_FAULT : 0;
}

static int pause_after(host *h, int reason, uint64_t deadline)
{
    if (reason == USB_STALL)
        return reason;
    if (h->chip.now >= deadline)
        return reason == USB_SILENT ? USB_SILENT : USB_TIMEOUT;
    uint64_t pause = reason == USB_NAK && h->poll_cycles > REFUSAL_CYCLES ? h->poll_cycles : REFUSAL_CYCLES;
    uint64_t left = deadline - h->chip.now;
    return wait_cycles(h, pause < left ? pause : left) ? USB_FAULT : 0;
}

int host_in(host *h, int endpoint, u8 *data, uint64_t deadline)
{
    for (;;) {
        int size = usb_peek_in(&h->chip, h->address, endpoint);
        if (size < 0) {
            int stop = pause_after(h, size, deadline);
            if (stop)
                return stop;
            continue;
        }
        int toggle;
        if (wait_cycles(h, TRANSACTION_CYCLES + 8u * (unsigned)size))
            return USB_FAULT;
        size = usb_take_in(&h->chip, endpoint, data, &toggle);
        bool is_new = toggle == h->toggle[endpoint][1];
        if (is_new) { /* otherwise it repeats a packet whose acknowledgement got lost, so a host drops it */
            h->toggle[endpoint][1] ^= 1;
            return size;
        }
        h->repeated++;
    }
}

static int host_token_out(host *h, int endpoint, bool setup, const u8 *data, int size, uint64_t deadline)
{
    for (;;) {
        int state = usb_peek_out(&h->chip, h->address, endpoint, setup);
        if (!state)
            break;
        int stop = pause_after(h, state, deadline);
        if (stop)
            return stop;
    }
    if (wait_cycles(h, TRANSACTION_CYCLES + 8u * (unsigned)size))
        return USB_FAULT;
    usb_give_out(&h->chip, endpoint, setup, setup ? 0 : h->toggle[endpoint][0], data, size);
    h->toggle[endpoint][0] ^= 1;
    return size;
}

int host_out(host *h, int endpoint, const u8 *data, int size, uint64_t deadline)
{
    return host_token_out(h, endpoint, false, data, size, deadline);
}

static int read_stage(host *h, u8 *data, int length, uint64_t deadline)
{
    u8 packet[USB_PACKET_BYTES];
    int got = 0;
    while (got < length) {
        int size = host_in(h, 0, packet, deadline);
        if (size < 0)
            return size;
        int kept = size < length - got ? size : length - got;
        memcpy(data + got, packet, (size_t)kept);
        got += kept;
        if (size < h->control_bytes)
            break;
    }
    h->toggle[0][0] = 1; /* the status stage is always DATA1 */
    int state = host_out(h, 0, packet, 0, deadline);
    return state < 0 ? state : got;
}

static int write_stage(host *h, const u8 *data, int length, uint64_t deadline)
{
    u8 packet[USB_PACKET_BYTES];
    for (int sent = 0; sent < length;) {
        int size = length - sent < h->control_bytes ? length - sent : h->control_bytes;
        int state = host_out(h, 0, data + sent, size, deadline);
        if (state < 0)
            return state;
        sent += size;
    }
    h->toggle[0][1] = 1;
    int state = host_in(h, 0, packet, deadline);
    return state < 0 ? state : length;
}

int host_control(host *h, const u8 setup[8], u8 *data, uint64_t deadline)
{
    int length = setup[6] | setup[7] << 8;
    int state = host_token_out(h, 0, true, setup, 8, deadline);
    if (state < 0)
        return state;
    h->toggle[0][0] = h->toggle[0][1] = 1;
    if (setup[0] & 0x80)
        return read_stage(h, data, length, deadline);
    return write_stage(h, data, length, deadline);
}

void host_bus_reset(host *h)
{
    memset(h->toggle, 0, sizeof h->toggle);
    h->address = 0;
    usb_bus_reset(&h->chip);
}
