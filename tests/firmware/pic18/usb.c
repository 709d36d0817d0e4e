/* The USB serial interface engine: what happens between a token on the bus and the firmware's descriptors. */
#include "pic18.h"
#include "sfr.h"
#include "usb.h"

#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;

enum { FRAME_CYCLES = 12000, IDLE_CYCLES = 36000, USTAT_ADVANCE_CYCLES = 6, BUFFER_TABLE = 0x400 };

void usb_reset_registers(pic *p)
{
    memset(p->odd, 0, sizeof p->odd);
    p->ustat_count = 0;
    p->ustat_due = p->sof_due = p->idle_due = PIC_NEVER;
}

/* USBIF follows the enabled flags of UIR as long as any of them is set. */
void usb_update_irq(pic *p, uint64_t when)
{
    if (p->ram[UIR] & p->ram[UIE] & 0x7F) {
        p->ram[PIR2] |= USBIF;
        update_irq(p, when);
    }
}

static void raise(pic *p, u8 flag, uint64_t when)
{
    p->ram[UIR] |= flag;
    usb_update_irq(p, when);
}

static void clear_ustat(pic *p, uint64_t when)
{
    memmove(p->ustat, p->ustat + 1, sizeof p->ustat - 1);
    if (--p->ustat_count)
        p->ustat_due = when + USTAT_ADVANCE_CYCLES;
}

void usb_write(pic *p, u16 address, u8 value)
{
    u8 before = p->ram[address];
    uint64_t when = p->now + 1;
    p->ram[address] = value;
    switch (address) {
    case UIR:
        if (before & TRNIF && !(value & TRNIF) && p->ustat_count)
            clear_ustat(p, when);
        break;
    case UCON:
        if (value & PPBRST)
            memset(p->odd, 0, sizeof p->odd);
        if ((before ^ value) & USBEN) {
            p->ustat_count = 0;
            p->ustat_due = PIC_NEVER;
            p->idle_due = value & USBEN && p->sof_due == PIC_NEVER ? when + IDLE_CYCLES : PIC_NEVER;
        }
        break;
    case USTAT: p->ram[USTAT] = before; break; /* read-only */
    default: break;
    }
    usb_update_irq(p, when);
}

void usb_events(pic *p)
{
    if (p->now >= p->ustat_due) {
        uint64_t when = p->ustat_due;
        p->ustat_due = PIC_NEVER;
        p->ram[USTAT] = p->ustat[0];
        raise(p, TRNIF, when);
    }
    if (p->now >= p->idle_due) {
        uint64_t when = p->idle_due;
        p->idle_due += IDLE_CYCLES;
        raise(p, IDLEIF, when);
    }
    if (p->now >= p->sof_due) {
        uint64_t when = p->sof_due;
        p->sof_due += FRAME_CYCLES;
        p->frame = (p->frame + 1) & 0x7FF;
        p->ram[UFRML] = (u8)p->frame;
        p->ram[UFRMH] = (u8)(p->frame >> 8);
        if (p->ram[UCON] & USBEN)
            raise(p, SOFIF, when);
    }
}

static bool has_two_buffers(const pic *p, int endpoint, int in)
{
    switch (p->ram[UCFG] & 3) {
    case 0: return false;
    case 1: return !endpoint && !in;
    case 2: return true;
    default: return endpoint;
    }
}

/* Where the descriptor is that the engine uses next (DS39632 table 17-4). */
static u16 descriptor(const pic *p, int endpoint, int in)
{
    int odd = has_two_buffers(p, endpoint, in) ? p->odd[endpoint][in] : 0;
    switch (p->ram[UCFG] & 3) {
    case 0: return (u16)(BUFFER_TABLE + 8 * endpoint + 4 * in);
    case 1: return (u16)(BUFFER_TABLE + 8 * endpoint + 4 * in + (endpoint || in ? 4 : 4 * odd));
    case 2: return (u16)(BUFFER_TABLE + 16 * endpoint + 8 * in + 4 * odd);
    default: return (u16)(endpoint ? BUFFER_TABLE + 16 * endpoint - 8 + 8 * in + 4 * odd : BUFFER_TABLE + 4 * in);
    }
}

static void complete(pic *p, int endpoint, int in, u16 at, u8 pid)
{
    int odd = has_two_buffers(p, endpoint, in) ? p->odd[endpoint][in] : 0;
    p->ram[at] = (u8)((p->ram[at] & (DTS | 0x03)) | pid << 2);
    if (has_two_buffers(p, endpoint, in))
        p->odd[endpoint][in] ^= 1;
    p->ustat[p->ustat_count++] = (u8)(endpoint << 3 | in << 2 | odd << 1);
    if (p->ustat_count == 1) {
        p->ram[USTAT] = p->ustat[0];
        raise(p, TRNIF, p->now);
    }
    update_next_event(p);
}

/* Whether the engine would take part in a transaction at all; OK if it would. */
static int ready(pic *p, int address, int endpoint, u8 enabled)
{
    if (!(p->ram[UCON] & USBEN) || (p->ram[UADDR] & 0x7F) != address || !(p->ram[UEP0 + endpoint] & enabled))
        return USB_SILENT;
    if (p->ram[UCON] & PKTDIS || p->ustat_count == 4)
        return USB_NAK;
    return 0;
}

static int buffer_state(pic *p, int endpoint, u16 at)
{
    if (p->ram[UEP0 + endpoint] & EPSTALL || (p->ram[at] & (UOWN | BSTALL)) == (UOWN | BSTALL)) {
        raise(p, STALLIF, p->now);
        return USB_STALL;
    }
    return p->ram[at] & UOWN ? 0 : USB_NAK;
}

static u16 buffer_address(const pic *p, u16 at) { return (u16)(p->ram[at + 2] | p->ram[at + 3] << 8); }

int usb_peek_in(pic *p, int address, int endpoint)
{
    int state = ready(p, address, endpoint, EPINEN);
    u16 at = descriptor(p, endpoint, 1);
    if (!state)
        state = buffer_state(p, endpoint, at);
    return state ? state : (p->ram[at] & 3) << 8 | p->ram[at + 1];
}

int usb_take_in(pic *p, int endpoint, u8 *data, int *toggle)
{
    u16 at = descriptor(p, endpoint, 1), from = buffer_address(p, at);
    int size = (p->ram[at] & 3) << 8 | p->ram[at + 1];
    for (int i = 0; i < size && i < USB_PACKET_BYTES; i++)
        data[i] = p->ram[(from + i) & 0xFFF];
    *toggle = p->ram[at] & DTS ? 1 : 0;
    complete(p, endpoint, 1, at, USB_PID_IN);
    return size;
}

int usb_peek_out(pic *p, int address, int endpoint, bool setup)
{
    int state = ready(p, address, endpoint, EPOUTEN);
    u16 at = descriptor(p, endpoint, 0);
    if (state)
        return state;
    if (setup) /* a setup packet clears a stall */
        return p->ram[at] & UOWN ? 0 : USB_NAK;
    return buffer_state(p, endpoint, at);
}

void usb_give_out(pic *p, int endpoint, bool setup, int toggle, const u8 *data, int size)
{
    u16 at = descriptor(p, endpoint, 0), to = buffer_address(p, at);
    int room = (p->ram[at] & 3) << 8 | p->ram[at + 1];
    /* With synchronisation on, a packet with the wrong toggle is acknowledged and forgotten. */
    if (!setup && p->ram[at] & DTSEN && !!(p->ram[at] & DTS) != toggle)
        return;
    for (int i = 0; i < size && i < room; i++)
        p->ram[(to + i) & 0xFFF] = data[i];
    p->ram[at + 1] = (u8)size;
    p->ram[at] = (u8)((p->ram[at] & ~(DTS | 0x03)) | (toggle ? DTS : 0));
    if (setup)
        p->ram[UCON] |= PKTDIS;
    complete(p, endpoint, 0, at, setup ? USB_PID_SETUP : USB_PID_OUT);
}

bool usb_attached(const pic *p) { return p->ram[UCON] & USBEN; }

void usb_bus_reset(pic *p)
{
    p->ram[UADDR] = 0;
    p->ustat_count = 0;
    p->ustat_due = PIC_NEVER;
    p->sof_due = p->now + FRAME_CYCLES;
    p->idle_due = PIC_NEVER;
    raise(p, p->ram[UCON] & SUSPND ? ACTVIF | URSTIF : URSTIF, p->now);
    update_next_event(p);
}
