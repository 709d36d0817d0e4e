/* What is soldered around the chip, as far as the firmware can tell: it was worked out from the lines that the images
 * switch, not from a schematic.
 *
 * Both boards have two LTC1867 converters on SPI, the first for the coarse and the second for the fine range, and a
 * temperature sensor. On an LVPM their select lines are on port D; the switches of the calibration are on ports A and
 * E; eight more outputs hang on a shift register. An HVPM has 8-bit registers behind port D that hold all of this.
 * The analogue side is a table: a reading for each input and each position of its switches. */
#include "board.h"
#include "sfr.h"

typedef uint8_t u8;
typedef uint16_t u16;

static u8 port(const pic *p, int n) { return p->ram[LATA + n]; }

/* ---- lines ---- */

static bool line(u8 levels, int bit) { return levels >> bit & 1; }

static u8 select_lines(const struct board *b, const pic *p) { return b->kind == BOARD_LVPM ? port(p, 3) : b->latch[0]; }

static int input_state(const struct board *b, const pic *p, int channel)
{
    bool calibrates, reference;
    if (b->kind == BOARD_LVPM) {
        u8 a = port(p, 0), e = port(p, 4);
        calibrates = channel == MAIN ? line(a, 0) : channel == USB ? line(a, 3) : line(e, 0);
        reference = channel == MAIN ? line(a, 2) : channel == USB && line(a, 5);
    } else {
        u8 switches = b->latch[channel == MAIN ? 0 : 2];
        calibrates = channel == AUX ? line(switches, 4) : line(switches, 6);
        reference = channel != AUX && line(switches, 7); /* how aux gets its reference is not known */
    }
    return !calibrates ? MEASURE : reference ? REFERENCE : ZERO;
}

/* ---- converters ---- */

static u16 convert(const struct board *b, const pic *p, int range, u8 config)
{
    int pair = config >> 4 & 3; /* bits S1 and S0: inputs 0-1, 2-3, 4-5 or 6-7 */
    if (pair < CURRENTS)
        return b->current[pair][range][input_state(b, p, pair)];
    return b->voltage[range][line(config, 6)];
}

static void select_converters(struct board *b, const pic *p)
{
    u8 lines = select_lines(b, p);
    for (int range = 0; range < RANGES; range++) {
        converter *c = &b->adc[range];
        bool selected = !line(lines, range);
        if (c->selected && !selected)
            c->result = convert(b, p, range, c->config);
        if (!c->selected && selected)
            c->bytes = 0;
        c->selected = selected;
    }
    if (!line(lines, 3))
        b->sensor_bytes = 0;
}

static u8 shift(converter *c, u8 out)
{
    int at = c->bytes++;
    if (at == 0)
        c->config = out;
    return at == 0 ? (u8)(c->result >> 8) : at == 1 ? (u8)c->result : 0;
}

uint8_t board_spi(struct board *b, const pic *p, u8 out)
{
    u8 lines = select_lines(b, p), in = 0xFF;
    b->shifted = out;
    if (line(lines, 3)) /* the temperature sensor */
        return (u8)(b->sensor_bytes++ ? b->temperature : b->temperature >> 8);
    /* The firmware leaves the coarse converter selected while it reads the fine one. */
    for (int range = 0; range < RANGES; range++)
        if (b->adc[range].selected)
            in = shift(&b->adc[range], out);
    return in;
}

/* ---- registers behind port D, and the LVPM's shift register ---- */

void board_outputs_changed(struct board *b, const pic *p)
{
    u8 strobes = b->kind == BOARD_LVPM ? port(p, 3) & 0x10 : port(p, 0) & 0x07;
    if (b->kind == BOARD_LVPM) {
        if (strobes & ~b->strobes)
            b->outputs = b->shifted;
    } else if (!p->ram[TRISA + 3]) {
        for (int i = 0; i < 3; i++)
            if (line(strobes, i)) /* transparent while the strobe is high */
                b->latch[i] = port(p, 3);
    }
    b->strobes = strobes;
    select_converters(b, p);
}

uint8_t board_pins(const struct board *b, const pic *p, int n)
{
    (void)p;
    return b->pins[n];
}
