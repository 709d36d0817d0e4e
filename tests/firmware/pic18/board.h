/* The boards around the chip: stock LVPM (white) and HVPM (black). See board.c. */
#ifndef BOARD_H
#define BOARD_H

#include "pic18.h"

enum { BOARD_LVPM, BOARD_HVPM };
enum { MEASURE, ZERO, REFERENCE, INPUT_STATES }; /* what the switches in front of the amplifiers connect */
enum { MAIN, USB, AUX, CURRENTS };
enum { COARSE, FINE, RANGES };

/* An LTC1867: 16 bits, eight inputs. A word shifted in chooses the input of the next conversion, which begins when the
 * chip is deselected; the word shifted out meanwhile is the conversion before. */
typedef struct {
    uint8_t config;
    uint16_t result;
    int bytes; /* shifted since it was selected */
    bool selected;
} converter;

struct board {
    int kind;
    /* Set from outside: what the converters read, and the inputs of the chip. */
    uint16_t current[CURRENTS][RANGES][INPUT_STATES];
    uint16_t voltage[RANGES][2]; /* by converter and input, 6 or 7 */
    uint16_t temperature;        /* word of the sensor, degrees Celsius * 128 */
    uint8_t pins[5];

    converter adc[RANGES];
    int sensor_bytes;
    uint8_t latch[3]; /* HVPM: registers behind port D, strobed by RA0, RA1 and RA2 */
    uint8_t shifted;  /* LVPM: last byte on SPI, which RD4 moves into `outputs` */
    uint8_t outputs;
    uint8_t strobes;  /* levels of the strobe lines */
};

#endif
