/* Data memory: banks, indirect access, the registers of the core itself, and the return stack. */
#include "memory.h"
#include "sfr.h"

#include <stddef.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;

static u16 pointer(const pic *p, u16 low) { return (u16)((p->ram[low + 1] & 0x0F) << 8 | p->ram[low]); }

void set_pointer(pic *p, u16 low, u16 value)
{
    p->ram[low] = (u8)value;
    p->ram[low + 1] = (value >> 8) & 0x0F;
}

static bool is_indirect(u16 a)
{
    return a >= PLUSW2 && ((a >= PLUSW0 && a <= INDF0) || (a >= PLUSW1 && a <= INDF1) || a <= INDF2);
}

/* The place that an access to `a` really means. Moves the pointer, so it is called once per access. */
u16 resolve(pic *p, u16 a)
{
    if (!is_indirect(a))
        return a;
    u16 low = a >= PLUSW0 ? FSR0L : a >= PLUSW1 ? FSR1L : FSR2L;
    u16 at = pointer(p, low);
    switch (a - (low + 2)) {
    case 0: return (u16)(at + (int8_t)p->ram[WREG]) & 0xFFF;            /* PLUSW */
    case 1: set_pointer(p, low, at + 1); return (at + 1) & 0xFFF;       /* PREINC */
    case 2: set_pointer(p, low, at - 1); return at;                     /* POSTDEC */
    case 3: set_pointer(p, low, at + 1); return at;                     /* POSTINC */
    default: return at;                                                 /* INDF */
    }
}

/* Registers of the core itself, without any side effect. */
static bool is_plain(u16 a) { return a >= STATUS && (a < INTCON3 || a > INTCON) && a < STKPTR && a != PCL; }

u8 load(pic *p, u16 a)
{
    if (a < FIRST_SFR)
        return a < 0x800 ? p->ram[a] : 0;
    if (is_indirect(a)) /* an indirect register reached indirectly is not there */
        return 0;
    if (is_plain(a))
        return p->ram[a];
    switch (a) {
    case PCL:
        p->ram[PCLATU] = (u8)(p->pc >> 16);
        p->ram[PCLATH] = (u8)(p->pc >> 8);
        return (u8)p->pc;
    case TOSL: return p->depth ? (u8)p->stack[p->depth - 1] : 0;
    case TOSH: return p->depth ? (u8)(p->stack[p->depth - 1] >> 8) : 0;
    case TOSU: return p->depth ? (u8)(p->stack[p->depth - 1] >> 16) : 0;
    case STKPTR: return p->depth;
    default: return sfr_read(p, a);
    }
}

/* Writing the program counter costs a cycle, because the instruction fetched meanwhile is thrown away. */
int store(pic *p, u16 a, u8 v)
{
    if (a < FIRST_SFR) {
        if (a < 0x800)
            p->ram[a] = v;
        return 0;
    }
    if (is_indirect(a))
        return 0;
    if (is_plain(a)) {
        bool is_nibble = a == BSR || a == FSR0H || a == FSR1H || a == FSR2H;
        p->ram[a] = is_nibble ? v & 0x0F : a == STATUS || a == PCLATU ? v & 0x1F : v;
        return 0;
    }
    u32 *top = p->depth ? &p->stack[p->depth - 1] : NULL;
    switch (a) {
    case PCL:
        p->pc = ((u32)(p->ram[PCLATU] & 0x1F) << 16 | (u32)p->ram[PCLATH] << 8 | v) & ~1u;
        return 1;
    case TOSL: if (top) *top = (*top & ~0xFFu) | v; return 0;
    case TOSH: if (top) *top = (*top & ~0xFF00u) | (u32)v << 8; return 0;
    case TOSU: if (top) *top = (*top & 0xFFFFu) | (u32)(v & 0x1F) << 16; return 0;
    case STKPTR: p->depth = (v & 0x1F) > PIC_STACK_LEVELS ? PIC_STACK_LEVELS : v & 0x1F; return 0;
    default: sfr_write(p, a, v); return 0;
    }
}

void push(pic *p, u32 address)
{
    if (p->depth == PIC_STACK_LEVELS) {
        pic_stop(p, "return stack overflows", p->pc - 2);
        return;
    }
    p->stack[p->depth++] = address;
}

u32 pop(pic *p)
{
    if (!p->depth) {
        pic_stop(p, "return stack underflows", p->pc - 2);
        return 0;
    }
    return p->stack[--p->depth];
}
