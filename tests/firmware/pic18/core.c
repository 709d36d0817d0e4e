/* The PIC18 core: fetch, decode, execute, interrupts. */
#include "memory.h"
#include "sfr.h"

#include <stdio.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;

void pic_stop(pic *p, const char *why, u32 where)
{
    if (!p->fault[0])
        snprintf(p->fault, sizeof p->fault, "%s at 0x%04x", why, (unsigned)where);
}

void pic_power_up(pic *p)
{
    memset(p->ram, 0, sizeof p->ram);
    p->pc = 0;
    p->depth = 0;
    p->in_high = p->in_low = p->asleep = false;
    p->irq = 0;
    peripherals_reset(p);
    update_next_event(p);
}

enum { WAKE_UP_CYCLES = 24000 }; /* 2 ms, DS39632 parameter 32 and F12 */

/* ---- arithmetic ---- */

static void set_flags(pic *p, u8 mask, u8 flags) { p->ram[STATUS] = (p->ram[STATUS] & ~mask) | (flags & mask); }

static u8 zero_negative(u8 r) { return (r ? 0 : FLAG_Z) | (r & 0x80 ? FLAG_N : 0); }

enum { ALL_FLAGS = FLAG_C | FLAG_DC | FLAG_Z | FLAG_OV | FLAG_N, ZN = FLAG_Z | FLAG_N };

typedef struct {
    u8 value;
    u8 flags;
} result;

static result add(u8 a, u8 b, int carry)
{
    unsigned sum = (unsigned)a + b + (unsigned)carry;
    u8 r = (u8)sum;
    u8 flags = zero_negative(r);
    flags |= sum > 0xFF ? FLAG_C : 0;
    flags |= (a & 0x0F) + (b & 0x0F) + carry > 0x0F ? FLAG_DC : 0;
    flags |= (a ^ r) & (b ^ r) & 0x80 ? FLAG_OV : 0;
    return (result){r, flags};
}

/* a - b - borrow; C and DC are set where nothing is borrowed. */
static result subtract(u8 a, u8 b, int borrow) { return add(a, (u8)~b, !borrow); }

static void decimal_adjust(pic *p)
{
    u8 status = p->ram[STATUS];
    unsigned w = p->ram[WREG];
    if ((w & 0x0F) > 9 || (status & FLAG_DC))
        w += 0x06;
    if ((w & 0x1F0) > 0x90 || (status & FLAG_C)) {
        w += 0x60;
        set_flags(p, FLAG_C, FLAG_C);
    }
    p->ram[WREG] = (u8)w;
}

/* ---- instructions ---- */

static u16 word_at(const pic *p, u32 address)
{
    address &= PIC_FLASH_BYTES - 1;
    return (u16)(p->flash[address] | p->flash[address + 1] << 8);
}

/* An instruction of two words is skipped as a whole, which takes one cycle more. */
static int skip(pic *p)
{
    u16 next = word_at(p, p->pc);
    bool two_words = next >> 12 == 0xC || next >> 9 == 0xEC >> 1 || next >> 8 == 0xEE || next >> 8 == 0xEF;
    p->pc += two_words ? 4 : 2;
    return two_words ? 2 : 1;
}

/* Table reads: with *, *+, *- and +* for modes 0 to 3. */
static void table_read(pic *p, int mode)
{
    u32 at = (u32)(p->ram[TBLPTRU] & 0x3F) << 16 | (u32)p->ram[TBLPTRH] << 8 | p->ram[TBLPTRL];
    if (mode == 3)
        at++;
    p->ram[TABLAT] = at < PIC_FLASH_BYTES ? p->flash[at] : 0;
    if (mode == 1)
        at++;
    if (mode == 2)
        at--;
    p->ram[TBLPTRU] = (at >> 16) & 0x3F;
    p->ram[TBLPTRH] = (u8)(at >> 8);
    p->ram[TBLPTRL] = (u8)at;
}

static void leave(pic *p, bool fast)
{
    p->pc = pop(p);
    if (fast) {
        p->ram[WREG] = p->shadow_w;
        p->ram[STATUS] = p->shadow_status;
        p->ram[BSR] = p->shadow_bsr;
    }
}

static void save_fast(pic *p)
{
    p->shadow_w = p->ram[WREG];
    p->shadow_status = p->ram[STATUS];
    p->shadow_bsr = p->ram[BSR];
}

static void return_from_interrupt(pic *p, bool fast)
{
    leave(p, fast);
    if (p->in_low && !p->in_high) {
        p->in_low = false;
        p->ram[INTCON] |= GIEL;
    } else {
        p->in_high = false;
        p->ram[INTCON] |= GIEH;
    }
    update_irq(p, p->now + 2);
}

/* 0x00xx: instructions without an operand. Returns the cycles they take. */
static int execute_inherent(pic *p, u8 k)
{
    switch (k) {
    case 0x00: case 0x04: return 1; /* NOP; CLRWDT: the watchdog of these boards is off */
    case 0x03: stop_timers(p); p->asleep = true; return 1;
    case 0x05: push(p, p->pc); return 1;
    case 0x06: pop(p); return 1;
    case 0x07: decimal_adjust(p); return 1;
    case 0x08: case 0x09: case 0x0A: case 0x0B: table_read(p, k & 3); return 2;
    case 0x0C: case 0x0D: case 0x0E: case 0x0F:
        pic_stop(p, "writing to program memory is not modelled", p->pc - 2);
        return 2;
    case 0x10: case 0x11: return_from_interrupt(p, k & 1); return 2;
    case 0x12: case 0x13: leave(p, k & 1); return 2;
    case 0xFF: pic_stop(p, "the firmware resets the chip", p->pc - 2); return 1;
    default: pic_stop(p, "no such instruction", p->pc - 2); return 1;
    }
}

static void multiply(pic *p, u8 a, u8 b)
{
    unsigned product = (unsigned)a * b;
    p->ram[PRODH] = (u8)(product >> 8);
    p->ram[PRODL] = (u8)product;
}

/* 0x08xx to 0x0Fxx: W and a literal. */
static int execute_literal(pic *p, u8 high, u8 k)
{
    u8 w = p->ram[WREG];
    result r = {w, 0};
    u8 affected = ZN;
    int cycles = 1;
    switch (high) {
    case 0x08: r = subtract(k, w, 0); affected = ALL_FLAGS; break;
    case 0x09: r.value = w | k; break;
    case 0x0A: r.value = w ^ k; break;
    case 0x0B: r.value = w & k; break;
    case 0x0C: r.value = k; affected = 0; p->pc = pop(p); cycles = 2; break;
    case 0x0D: multiply(p, w, k); affected = 0; break;
    case 0x0E: r.value = k; affected = 0; break;
    default: r = add(w, k, 0); affected = ALL_FLAGS; break;
    }
    p->ram[WREG] = r.value;
    set_flags(p, affected, affected == ALL_FLAGS ? r.flags : zero_negative(r.value));
    return cycles;
}

/* 0x04xx to 0x5Fxx: a file register, perhaps W; the result goes to either. */
static int execute_file(pic *p, u8 operation, u16 address, bool to_file)
{
    u16 a = resolve(p, address);
    u8 f = load(p, a), w = p->ram[WREG];
    int carry = p->ram[STATUS] & FLAG_C ? 1 : 0;
    result r = {0, 0};
    u8 affected = 0;
    bool skips = false;
    switch (operation) {
    case 0x01: r = subtract(f, 1, 0); affected = ALL_FLAGS; break;                                 /* DECF */
    case 0x04: r.value = f | w; affected = ZN; break;                                              /* IORWF */
    case 0x05: r.value = f & w; affected = ZN; break;                                              /* ANDWF */
    case 0x06: r.value = f ^ w; affected = ZN; break;                                              /* XORWF */
    case 0x07: r.value = (u8)~f; affected = ZN; break;                                             /* COMF */
    case 0x08: r = add(f, w, carry); affected = ALL_FLAGS; break;                                  /* ADDWFC */
    case 0x09: r = add(f, w, 0); affected = ALL_FLAGS; break;                                      /* ADDWF */
    case 0x0A: r = add(f, 1, 0); affected = ALL_FLAGS; break;                                      /* INCF */
    case 0x0B: r.value = f - 1; skips = !r.value; break;                                           /* DECFSZ */
    case 0x0C: r.value = (u8)(f >> 1 | carry << 7); r.flags = f & 1; affected = ZN | FLAG_C; break; /* RRCF */
    case 0x0D: r.value = (u8)(f << 1 | carry); r.flags = f >> 7; affected = ZN | FLAG_C; break;    /* RLCF */
    case 0x0E: r.value = (u8)(f << 4 | f >> 4); break;                                             /* SWAPF */
    case 0x0F: r.value = f + 1; skips = !r.value; break;                                           /* INCFSZ */
    case 0x10: r.value = (u8)(f >> 1 | f << 7); affected = ZN; break;                              /* RRNCF */
    case 0x11: r.value = (u8)(f << 1 | f >> 7); affected = ZN; break;                              /* RLNCF */
    case 0x12: r.value = f + 1; skips = r.value; break;                                            /* INFSNZ */
    case 0x13: r.value = f - 1; skips = r.value; break;                                            /* DCFSNZ */
    case 0x14: r.value = f; affected = ZN; break;                                                  /* MOVF */
    case 0x15: r = subtract(w, f, !carry); affected = ALL_FLAGS; break;                            /* SUBFWB */
    case 0x16: r = subtract(f, w, !carry); affected = ALL_FLAGS; break;                            /* SUBWFB */
    default: r = subtract(f, w, 0); affected = ALL_FLAGS; break;                                   /* SUBWF */
    }
    int extra = 0;
    if (!to_file)
        p->ram[WREG] = r.value;
    else if (a != STATUS || !affected) /* flags win over a result that would overwrite them */
        extra = store(p, a, r.value);
    set_flags(p, affected, (affected == ALL_FLAGS ? 0 : zero_negative(r.value)) | r.flags);
    return 1 + extra + (skips ? skip(p) : 0);
}

/* 0x60xx to 0x6Fxx: compare and skip, set, clear, negate, move. */
static int execute_compare(pic *p, u8 operation, u16 address)
{
    u16 a = resolve(p, address);
    u8 w = p->ram[WREG];
    result r;
    switch (operation) {
    case 0: return 1 + (load(p, a) < w ? skip(p) : 0);
    case 1: return 1 + (load(p, a) == w ? skip(p) : 0);
    case 2: return 1 + (load(p, a) > w ? skip(p) : 0);
    case 3: return 1 + (load(p, a) == 0 ? skip(p) : 0);
    case 4: return 1 + store(p, a, 0xFF);
    case 5: {
        int extra = a == STATUS ? 0 : store(p, a, 0);
        set_flags(p, FLAG_Z, FLAG_Z);
        return 1 + extra;
    }
    case 6: {
        r = subtract(0, load(p, a), 0);
        int extra = a == STATUS ? 0 : store(p, a, r.value);
        set_flags(p, ALL_FLAGS, r.flags);
        return 1 + extra;
    }
    default: return 1 + store(p, a, w);
    }
}

/* 0x7xxx to 0xBxxx: one bit of a file register. */
static int execute_bit(pic *p, u8 operation, u8 bit, u16 address)
{
    u16 a = resolve(p, address);
    u8 f = load(p, a);
    u8 mask = (u8)(1 << bit);
    switch (operation) {
    case 0x7: return 1 + store(p, a, f ^ mask);
    case 0x8: return 1 + store(p, a, f | mask);
    case 0x9: return 1 + store(p, a, f & (u8)~mask);
    case 0xA: return 1 + (f & mask ? skip(p) : 0);
    default: return 1 + (f & mask ? 0 : skip(p));
    }
}

static int execute_move(pic *p, u16 op)
{
    u16 to = word_at(p, p->pc) & 0xFFF;
    u8 value = load(p, resolve(p, op & 0xFFF));
    p->pc += 2;
    p->now++; /* it is written in the second cycle */
    int extra = store(p, resolve(p, to), value);
    p->now--;
    return 2 + extra;
}

static int branch(pic *p, int words)
{
    p->pc = (u32)((int)p->pc + 2 * words);
    return 2;
}

/* 0xE0xx to 0xEFxx: conditional branches, calls, LFSR. */
static int execute_control(pic *p, u16 op)
{
    static const u8 tested[4] = {FLAG_Z, FLAG_C, FLAG_OV, FLAG_N};
    u8 high = (u8)(op >> 8), k = (u8)op;
    if (high < 0xE8) {
        bool is_set = p->ram[STATUS] & tested[(high >> 1) & 3];
        return is_set != (high & 1) ? branch(p, (int8_t)k) : 1;
    }
    u16 next = word_at(p, p->pc);
    u32 target = ((u32)(next & 0xFFF) << 8 | k) << 1;
    switch (high) {
    case 0xEC: case 0xED:
        push(p, p->pc + 2);
        if (high & 1)
            save_fast(p);
        p->pc = target;
        return 2;
    case 0xEE:
        if ((op >> 4 & 0x0F) > 2)
            pic_stop(p, "no such instruction", p->pc - 2);
        else
            set_pointer(p, (u16[]){FSR0L, FSR1L, FSR2L}[op >> 4 & 3], (u16)((op & 0x0F) << 8 | (next & 0xFF)));
        p->pc += 2;
        return 2;
    case 0xEF: p->pc = target; return 2;
    default: pic_stop(p, "an instruction of the extended set", p->pc - 2); return 1;
    }
}

static int execute(pic *p)
{
    u16 op = word_at(p, p->pc);
    u8 high = (u8)(op >> 8), k = (u8)op;
    /* The access bank is the first 96 bytes of memory and the special-function registers. */
    u16 address = op & 0x100 ? (u16)((p->ram[BSR] & 0x0F) << 8 | k) : k < 0x60 ? k : 0xF00 | k;
    p->pc += 2;
    if (high >= 0x70 && high < 0xC0)
        return execute_bit(p, high >> 4, (high >> 1) & 7, address);
    if (high >= 0x60 && high < 0x70)
        return execute_compare(p, (high >> 1) & 7, address);
    if (high >= 0x10 && high < 0x60)
        return execute_file(p, high >> 2, address, high & 2);
    switch (high >> 4) {
    case 0xC: return execute_move(p, op);
    case 0xD:
        if (high & 8)
            push(p, p->pc);
        return branch(p, (op & 0x3FF) - (op & 0x400));
    case 0xE: return execute_control(p, op);
    case 0xF: return 1; /* the second word of an instruction alone does nothing */
    default: break;
    }
    if (high == 0x00)
        return execute_inherent(p, k);
    if (high == 0x01) {
        p->ram[BSR] = k & 0x0F;
        return 1;
    }
    if (high < 0x04) {
        multiply(p, p->ram[WREG], load(p, resolve(p, address)));
        return 1;
    }
    return high < 0x08 ? execute_file(p, 1, address, high & 2) : execute_literal(p, high, k);
}

static void enter_interrupt(pic *p)
{
    bool high = p->irq == 2;
    push(p, p->pc);
    save_fast(p);
    if (high) {
        p->in_high = true;
        p->ram[INTCON] &= (u8)~GIEH;
    } else {
        p->in_low = true;
        p->ram[INTCON] &= (u8)~GIEL;
    }
    p->pc = high ? 0x08 : 0x18;
    /* DS39500 8.3: the first instruction of the vector starts three cycles after the event, whether an instruction of
     * one or of two cycles was executing. */
    uint64_t earliest = p->irq_at + 3;
    p->now = p->now + 1 > earliest ? p->now + 1 : earliest;
    update_irq(p, p->now);
}

/* Any enabled interrupt wakes the core, after the time that crystal and PLL need to come up again. */
static void sleep_until(pic *p, uint64_t until)
{
    if (is_woken(p)) {
        p->asleep = false;
        p->now += WAKE_UP_CYCLES;
        start_timers(p);
    } else {
        p->now = p->next_event < until ? p->next_event : until;
    }
}

void pic_run(pic *p, uint64_t until)
{
    while (p->now < until && !p->fault[0]) {
        if (p->now >= p->next_event)
            peripheral_events(p);
        if (p->asleep) {
            sleep_until(p, until);
            continue;
        }
        if (p->irq && p->now > p->irq_at) {
            enter_interrupt(p);
            continue;
        }
        if (p->pc >= PIC_FLASH_BYTES) {
            pic_stop(p, "ran out of program memory", p->pc);
            return;
        }
        p->now += (uint64_t)execute(p);
    }
    if (p->now >= p->next_event)
        peripheral_events(p);
}
