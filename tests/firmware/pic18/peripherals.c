/* Timers 0 and 2, SPI, EEPROM, ports and the interrupt logic. */
#include "pic18.h"
#include "sfr.h"

#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;

/* ---- interrupts ---- */

static int wanted_level(const pic *p)
{
    const u8 *r = p->ram;
    u8 p1 = r[PIR1] & r[PIE1], p2 = r[PIR2] & r[PIE2];
    bool timer0 = r[INTCON] & TMR0IE && r[INTCON] & TMR0IF;
    if (!(r[INTCON] & GIEH))
        return 0;
    if (!(r[RCON] & IPEN))
        return timer0 || (r[INTCON] & GIEL && (p1 || p2)) ? 2 : 0;
    if ((timer0 && r[INTCON2] & TMR0IP) || p1 & r[IPR1] || p2 & r[IPR2])
        return 2;
    return r[INTCON] & GIEL && (timer0 || p1 || p2) ? 1 : 0;
}

/* Sleep ends with an enabled interrupt, whether or not interrupts as such are on. */
bool is_woken(const pic *p) { return p->ram[PIR1] & p->ram[PIE1] || p->ram[PIR2] & p->ram[PIE2]; }

void update_irq(pic *p, uint64_t when)
{
    int wanted = wanted_level(p);
    if (wanted && !p->irq)
        p->irq_at = when;
    p->irq = wanted;
}

static void raise(pic *p, u16 flags, u8 mask, uint64_t when)
{
    p->ram[flags] |= mask;
    update_irq(p, when);
}

/* ---- counters ---- */

static uint32_t count_at(const counter *c, uint64_t now)
{
    if (!c->divider || now < c->since)
        return c->value;
    return (uint32_t)((c->value + (now - c->since) / c->divider) % c->modulus);
}

static uint64_t next_overflow(const counter *c)
{
    if (!c->divider)
        return PIC_NEVER;
    return c->since + (uint64_t)(c->modulus - c->value % c->modulus) * c->divider;
}

/* Give a counter a new value or a new speed from `when` on; the prescaler starts again. */
static uint64_t set_counter(counter *c, uint32_t value, uint32_t divider, uint32_t modulus, uint64_t when)
{
    *c = (counter){when, value, divider, modulus};
    return next_overflow(c);
}

static uint64_t overflowed(counter *c, uint64_t when)
{
    c->since = when;
    c->value = 0;
    return next_overflow(c);
}

static uint32_t timer0_divider(u8 con)
{
    if (!(con & 0x80) || con & 0x20) /* off, or counting a pin */
        return 0;
    return con & 0x08 ? 1 : 2u << (con & 7);
}

static uint32_t timer2_divider(u8 con) { return con & 0x04 ? (con & 2 ? 16 : con & 1 ? 4 : 1) : 0; }

static void write_timer0(pic *p, u16 address, u8 value, uint64_t when)
{
    bool wide = !(p->ram[T0CON] & 0x40);
    if (address == TMR0H) {
        p->timer0_high = value;
        return;
    }
    if (address == T0CON) {
        uint32_t count = count_at(&p->timer0, p->now);
        p->ram[T0CON] = value;
        wide = !(value & 0x40);
        p->timer0_due = set_counter(&p->timer0, wide ? count : count & 0xFF, timer0_divider(value),
                                    wide ? 0x10000 : 0x100, when);
        return;
    }
    /* DS39632 11.1: after a write it does not count for two instruction cycles. */
    uint32_t count = wide ? (uint32_t)p->timer0_high << 8 | value : value;
    p->timer0_due = set_counter(&p->timer0, count, timer0_divider(p->ram[T0CON]), wide ? 0x10000 : 0x100, when + 2);
}

static void write_timer2(pic *p, u16 address, u8 value, uint64_t when)
{
    uint32_t count = address == TMR2 ? value : count_at(&p->timer2, p->now);
    p->ram[address] = value;
    if (address != PR2)
        p->timer2_matches = 0; /* writing TMR2 or T2CON clears the scalers */
    uint32_t modulus = count <= p->ram[PR2] ? p->ram[PR2] + 1u : 0x100;
    p->timer2_due = set_counter(&p->timer2, count, timer2_divider(p->ram[T2CON]), modulus, when);
}

void stop_timers(pic *p)
{
    p->timer0_due = set_counter(&p->timer0, count_at(&p->timer0, p->now), 0, p->timer0.modulus, p->now);
    p->timer2_due = set_counter(&p->timer2, count_at(&p->timer2, p->now), 0, p->timer2.modulus, p->now);
    update_next_event(p);
}

void start_timers(pic *p)
{
    p->timer0.divider = timer0_divider(p->ram[T0CON]);
    p->timer2.divider = timer2_divider(p->ram[T2CON]);
    p->timer0.since = p->timer2.since = p->now;
    p->timer0_due = next_overflow(&p->timer0);
    p->timer2_due = next_overflow(&p->timer2);
    update_next_event(p);
}

static void timer2_match(pic *p)
{
    uint64_t when = p->timer2_due;
    p->timer2.modulus = p->ram[PR2] + 1u;
    p->timer2_due = overflowed(&p->timer2, when);
    if (++p->timer2_matches > (p->ram[T2CON] >> 3 & 0x0Fu)) {
        p->timer2_matches = 0;
        raise(p, PIR1, TMR2IF, when);
    }
}

/* ---- SPI, EEPROM ---- */

static void write_spi(pic *p, u8 value, uint64_t when)
{
    static const u8 cycles_a_bit[3] = {1, 4, 16};
    u8 mode = p->ram[SSPCON1] & SSPM;
    if (!(p->ram[SSPCON1] & SSPEN))
        return;
    if (mode > 2) {
        pic_stop(p, "serial port mode is not modelled", p->pc - 2);
        return;
    }
    if (p->spi_due != PIC_NEVER) {
        p->ram[SSPCON1] |= WCOL;
        return;
    }
    /* The HVPM's firmware begins the second transfer of a sample without having read the first byte, and then waits for
     * BF: a write must clear it, although the data sheet only says that reading does. */
    p->ram[SSPSTAT] &= (u8)~BF;
    p->spi_in = board_spi(p->board, p, value);
    p->spi_due = when + 8u * cycles_a_bit[mode];
}

static void spi_done(pic *p)
{
    uint64_t when = p->spi_due;
    p->spi_due = PIC_NEVER;
    p->ram[SSPBUF] = p->spi_in;
    p->ram[SSPSTAT] |= BF;
    raise(p, PIR1, SSPIF, when);
}

enum { EEPROM_WRITE_CYCLES = 48000 }; /* 4 ms, DS39632 parameter D122 */

static void write_eecon1(pic *p, u8 value, uint64_t when)
{
    bool busy = p->eeprom_due != PIC_NEVER;
    u8 keep = busy ? WR : 0;
    if (value & (EEPGD | CFGS) && value & (RD | WR)) {
        pic_stop(p, "access to program memory through EECON1 is not modelled", p->pc - 2);
        return;
    }
    if (value & RD)
        p->ram[EEDATA] = p->eeprom[p->ram[EEADR]];
    if (value & WR && value & WREN && p->eeprom_unlock == 2 && !busy) {
        p->eeprom[p->ram[EEADR]] = p->ram[EEDATA];
        p->eeprom_due = when + EEPROM_WRITE_CYCLES;
        keep = WR;
    }
    p->ram[EECON1] = (u8)((value & ~(RD | WR)) | keep);
}

static void eeprom_done(pic *p)
{
    uint64_t when = p->eeprom_due;
    p->eeprom_due = PIC_NEVER;
    p->ram[EECON1] &= (u8)~WR;
    raise(p, PIR2, EEIF, when);
}

/* ---- ports ---- */

/* An output reads back as its latch, an input as what the board puts on the pin. */
static u8 read_port(const pic *p, u16 address)
{
    int port = address - PORTA;
    u8 inputs = p->ram[TRISA + port];
    return (board_pins(p->board, p, port) & inputs) | (p->ram[LATA + port] & (u8)~inputs);
}

/* ---- registers ---- */

void peripherals_reset(pic *p)
{
    static const struct { u16 address; u8 value; } at_power_up[] = {
        {INTCON2, 0xF5}, {INTCON3, 0xC0}, {T0CON, 0xFF}, {OSCCON, 0x40}, {HLVDCON, 0x05}, {RCON, 0x1C},
        {PR2, 0xFF}, {CMCON, 0x07}, {IPR1, 0xFF}, {IPR2, 0xFF}, {TRISA, 0x7F}, {TRISA + 1, 0xFF},
        {TRISA + 2, 0xF7}, {TRISA + 3, 0xFF}, {TRISE, 0x07},
    };
    for (unsigned i = 0; i < sizeof at_power_up / sizeof *at_power_up; i++)
        p->ram[at_power_up[i].address] = at_power_up[i].value;
    p->timer0 = (counter){0, 0, 0, 0x100};
    p->timer2 = (counter){0, 0, 0, 0x100};
    p->timer0_due = p->timer2_due = p->spi_due = p->eeprom_due = PIC_NEVER;
    p->eeprom_unlock = 0;
    usb_reset_registers(p);
}

/* Registers that may be read and written although nothing is behind them: switches of parts that stay off (analogue
 * inputs, comparator, serial port) and the PWM of the fan. */
static bool is_storage(u16 address)
{
    switch (address) {
    case OSCCON: case HLVDCON: case WDTCON: case ADCON1: case CMCON: case RCSTA: case CCP2CON: case CCPR2L: return true;
    default: return false;
    }
}

static bool is_modelled(u16 address)
{
    if (address >= UFRML && address <= UEP15)
        return true;
    if ((address >= PORTA && address <= PORTE) || (address >= LATA && address <= LATE) ||
        (address >= TRISA && address <= TRISE) || (address >= PIE1 && address <= IPR2))
        return true;
    switch (address) {
    case INTCON: case INTCON2: case INTCON3: case RCON: case T0CON: case PR2: case T2CON: case SSPSTAT: case SSPCON1:
    case EEADR: case EEDATA: case EECON1:
        return true;
    default: return is_storage(address);
    }
}

static void note_unmodelled(pic *p, u16 address)
{
    u8 *seen = &p->unmodelled[address & 0xFF];
    if (*seen < 0xFF)
        (*seen)++;
}

u8 sfr_read(pic *p, u16 address)
{
    if (address >= PORTA && address <= PORTE)
        return read_port(p, address);
    switch (address) {
    case TMR0L: {
        uint32_t count = count_at(&p->timer0, p->now);
        p->timer0_high = (u8)(count >> 8);
        return (u8)count;
    }
    case TMR0H: return p->timer0_high;
    case TMR2: return (u8)count_at(&p->timer2, p->now);
    case SSPBUF: p->ram[SSPSTAT] &= (u8)~BF; return p->ram[SSPBUF];
    case EECON2: return 0;
    default: break;
    }
    if (!is_modelled(address))
        note_unmodelled(p, address);
    return p->ram[address];
}

/* Called while the instruction still executes; what it writes takes effect at the end of the cycle. */
void sfr_write(pic *p, u16 address, u8 value)
{
    uint64_t when = p->now + 1;
    if (address >= PORTA && address <= PORTE)
        address += LATA - PORTA;
    switch (address) {
    case TMR0L: case TMR0H: case T0CON: write_timer0(p, address, value, when); break;
    case TMR2: case PR2: case T2CON: write_timer2(p, address, value, when); break;
    case SSPBUF: write_spi(p, value, when); break;
    case SSPSTAT: p->ram[SSPSTAT] = (u8)((value & ~BF) | (p->ram[SSPSTAT] & BF)); break;
    case EECON1: write_eecon1(p, value, when); break;
    case EECON2: p->eeprom_unlock = value == 0x55 ? 1 : value == 0xAA && p->eeprom_unlock == 1 ? 2 : 0; break;
    default:
        if (!is_modelled(address))
            note_unmodelled(p, address);
        if (address >= UFRML && address <= UEP15)
            usb_write(p, address, value);
        else
            p->ram[address] = value;
    }
    if (address >= LATA && address <= TRISE)
        board_outputs_changed(p->board, p);
    if (address == PIR2)
        usb_update_irq(p, when);
    update_irq(p, when);
    update_next_event(p);
}

void update_next_event(pic *p)
{
    const uint64_t due[] = {p->timer0_due, p->timer2_due, p->spi_due,  p->eeprom_due,
                            p->sof_due,    p->idle_due,   p->ustat_due};
    uint64_t first = PIC_NEVER;
    for (unsigned i = 0; i < sizeof due / sizeof *due; i++)
        first = due[i] < first ? due[i] : first;
    p->next_event = first;
}

void peripheral_events(pic *p)
{
    if (p->now >= p->timer0_due) {
        uint64_t when = p->timer0_due;
        p->timer0_due = overflowed(&p->timer0, when);
        raise(p, INTCON, TMR0IF, when);
    }
    if (p->now >= p->timer2_due)
        timer2_match(p);
    if (p->now >= p->spi_due)
        spi_done(p);
    if (p->now >= p->eeprom_due)
        eeprom_done(p);
    usb_events(p);
    update_next_event(p);
}
