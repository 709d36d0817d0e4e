/* A simulator of the PIC18F4550: enough of the chip to run the firmware of a Monsoon power monitor.
 *
 * Time is counted in instruction cycles, 12 million a second with the 48 MHz clock of these boards. The core
 * executes one instruction after the other; peripherals do not tick along but announce when something will
 * happen next, so that a simulated second costs a fraction of a real one.
 *
 * Sources are Microchip's data sheets DS39632 (PIC18F2455/2550/4455/4550) and DS39500 (PIC18 reference).
 * Modelled is what the images use: the core, timers 0 and 2, SPI, the data EEPROM, the ports and USB. Not modelled: the
 * extended instruction set, the watchdog, writing to program memory and every other peripheral. An image that
 * touches these stops with a message or leaves a mark in `unmodelled`; nothing is silently wrong.
 */
#ifndef PIC18_H
#define PIC18_H

#include <stdbool.h>
#include <stdint.h>

#define PIC_FLASH_BYTES 0x8000
#define PIC_EEPROM_BYTES 256
#define PIC_STACK_LEVELS 31
#define PIC_NEVER UINT64_MAX

/* A free-running counter, kept as "it had this value at that moment" and evaluated when somebody looks. */
typedef struct {
    uint64_t since;   /* cycle at which it shows `value`; before that it stands still */
    uint32_t value;
    uint32_t divider; /* cycles a count, 0 while it is stopped */
    uint32_t modulus; /* counts from one overflow to the next */
} counter;

struct board; /* what is soldered around the chip, see board.c */

typedef struct pic {
    uint8_t flash[PIC_FLASH_BYTES];
    uint8_t ram[0x1000]; /* data memory, special-function registers included */
    uint8_t eeprom[PIC_EEPROM_BYTES];

    uint64_t now;        /* cycles since power-up */
    uint64_t next_event; /* when a peripheral wants attention */
    char fault[128];     /* why the chip stopped; empty while it runs */
    uint8_t unmodelled[0x100]; /* accesses to registers 0xF00 + n that have no model, saturating */

    uint32_t pc;
    uint32_t stack[PIC_STACK_LEVELS];
    uint8_t depth;
    uint8_t shadow_w, shadow_status, shadow_bsr; /* the fast register stack */

    int irq;          /* 0 none, 1 low, 2 high priority wanted */
    uint64_t irq_at;  /* since when */
    bool in_high, in_low, asleep;

    counter timer0, timer2;
    uint64_t timer0_due, timer2_due;
    uint8_t timer0_high; /* buffered high byte of 16-bit access */
    uint32_t timer2_matches;

    uint64_t spi_due, eeprom_due;
    uint8_t spi_in;
    uint8_t eeprom_unlock; /* how far the sequence 55, AA has come */

    uint64_t sof_due;      /* next start of frame, PIC_NEVER without a host */
    uint64_t idle_due;     /* when a silent bus counts as suspended */
    uint16_t frame;
    uint8_t ustat[4];      /* completed transactions the firmware has not looked at */
    int ustat_count;
    uint64_t ustat_due;    /* when the next of them shows up in USTAT */
    uint8_t odd[16][2];    /* which ping-pong buffer is next, by endpoint and direction (1 is to the host) */

    struct board *board;
} pic;

/* core.c */
void pic_power_up(pic *p);
void pic_run(pic *p, uint64_t until);
void pic_stop(pic *p, const char *why, uint32_t where);

/* peripherals.c */
void peripherals_reset(pic *p);
uint8_t sfr_read(pic *p, uint16_t address);
void sfr_write(pic *p, uint16_t address, uint8_t value);
void peripheral_events(pic *p);
void update_next_event(pic *p);
void update_irq(pic *p, uint64_t when);
bool is_woken(const pic *p);
void stop_timers(pic *p);
void start_timers(pic *p);

/* usb.c: the serial interface engine */
void usb_reset_registers(pic *p);
void usb_write(pic *p, uint16_t address, uint8_t value);
void usb_events(pic *p);
void usb_update_irq(pic *p, uint64_t when);

/* board.c */
uint8_t board_spi(struct board *b, const pic *p, uint8_t out); /* a byte out, a byte in */
uint8_t board_pins(const struct board *b, const pic *p, int port);
void board_outputs_changed(struct board *b, const pic *p);

#endif
