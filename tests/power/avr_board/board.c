/* An Arduino Uno with an INA219: the sketch's machine code in simavr. Usage: board SKETCH.elf KEY=VALUE...
 *
 * Without `script` it prints the pseudo-terminal that plays the serial port and runs in real time until standard
 * input ends. With it, it sends the script's lines ("MILLISECONDS COMMAND") and writes each line of the sketch to
 * standard output after the cycle of its last byte, as fast as it can. The last line says what was seen, as JSON.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <simavr/avr_ioport.h>
#include <simavr/avr_uart.h>
#include <simavr/sim_avr.h>
#include <simavr/sim_elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "twi.h"

enum { CLOCK_HZ = 16000000, CYCLES_PER_MS = CLOCK_HZ / 1000, QUEUE = 1 << 16, LINE = 1024 };
enum { UCSR0A = 0xC0, UBRR0L = 0xC4, UBRR0H = 0xC5, U2X0 = 0x02, WDTCSR = 0x60, SPL = 0x5D, SPH = 0x5E };

static struct {
  double run_ms, reset_at_ms, hang_at_ms, hang_ms, absent_at_ms, absent_ms, sync_half_ms, boot_ms;
  double reset_on_open, clock_at, clock_value;
  const char *script;
} set;

static avr_t *avr;
static avr_uart_t *uart;
static avr_irq_t *uart_input, *sync_pin;
static twi_bus bus;
static int terminal = -1;
static uint8_t to_sketch[QUEUE], to_host[QUEUE];
static unsigned sketch_head, sketch_tail, host_count;
static char line[LINE];
static unsigned line_length, lowest_stack = 0xFFFF;
static unsigned long tx_bytes, host_lost, boots = 1;
static avr_cycle_count_t held_until, next_byte_at;

static double value_of(const char *text) { return strtod(text, NULL); }

static void option(const char *text) {
  static const struct { const char *key; double *place; } known[] = {
      {"shunt_uv", &bus.chip.shunt_uv},   {"bus_mv", &bus.chip.bus_mv},
      {"swing_uv", &bus.chip.swing_uv},   {"half_period_us", &bus.chip.half_period_us},
      {"slow", &bus.chip.slow},           {"run_ms", &set.run_ms},
      {"reset_at_ms", &set.reset_at_ms},  {"hang_at_ms", &set.hang_at_ms},
      {"hang_ms", &set.hang_ms},          {"absent_at_ms", &set.absent_at_ms},
      {"absent_ms", &set.absent_ms},      {"sync_half_ms", &set.sync_half_ms},
      {"boot_ms", &set.boot_ms},          {"reset_on_open", &set.reset_on_open},
      {"clock_at", &set.clock_at},        {"clock_value", &set.clock_value},
  };
  const char *equals = strchr(text, '=');
  const size_t length = equals ? (size_t)(equals - text) : 0;
  if (equals && !strncmp(text, "script", length)) {
    set.script = equals + 1;
    return;
  }
  for (size_t i = 0; equals && i < sizeof known / sizeof *known; i++)
    if (strlen(known[i].key) == length && !strncmp(text, known[i].key, length)) {
      *known[i].place = value_of(equals + 1);
      return;
    }
  fprintf(stderr, "unknown option %s\n", text);
  exit(2);
}

static double now_ms(void) { return (double)avr->cycle / CYCLES_PER_MS; }

/* ---- Serial port ---- */

static void sent(struct avr_irq_t *irq, uint32_t value, void *param) {
  (void)irq;
  (void)param;
  tx_bytes++;
  if (set.script) {
    if (value == '\n') {
      printf("%llu %.*s\n", (unsigned long long)avr->cycle, (int)line_length, line);
      line_length = 0;
    } else if (line_length < LINE) {
      line[line_length++] = (char)value;
    }
  } else if (host_count < QUEUE) {
    to_host[host_count++] = (uint8_t)value;
  } else {
    host_lost++;
  }
}

static void queue(uint8_t byte) {
  if ((sketch_head + 1) % QUEUE == sketch_tail) return;
  to_sketch[sketch_head] = byte;
  sketch_head = (sketch_head + 1) % QUEUE;
}

static unsigned bit_cycles(void) {
  const unsigned divider = avr->data[UBRR0L] | (avr->data[UBRR0H] & 15u) << 8;
  return (divider + 1) * (avr->data[UCSR0A] & U2X0 ? 8 : 16);
}

static void receive(void) {
  if (sketch_tail == sketch_head || avr->cycle < next_byte_at) return;
  avr_raise_irq(uart_input, to_sketch[sketch_tail]);
  sketch_tail = (sketch_tail + 1) % QUEUE;
  next_byte_at = avr->cycle + uart->cycles_per_byte;
}

/* ---- What happens to the board ---- */

static int within(double at_ms, double for_ms) {
  return at_ms > 0 && now_ms() >= at_ms && now_ms() < at_ms + for_ms;
}

static void events(void) {
  static int clock_set;
  bus.absent = within(set.absent_at_ms, set.absent_ms);
  bus.held = within(set.hang_at_ms, set.hang_ms);
  if (set.reset_at_ms > 0 && now_ms() >= set.reset_at_ms) {
    ina219_power_on(&bus.chip, now_us(avr));
    bus.pointer = 0; /* whoever goes on polling the bus voltage now reads the configuration */
    set.reset_at_ms = 0;
  }
  if (set.sync_half_ms > 0) avr_raise_irq(sync_pin, (uint64_t)(now_ms() / set.sync_half_ms) & 1);
  if (set.clock_at > 0 && !clock_set && now_ms() >= 1) { /* the count of timer overflows behind micros() */
    const uint32_t value = (uint32_t)set.clock_value;
    memcpy(avr->data + (unsigned)set.clock_at, &value, 4);
    clock_set = 1;
  }
}

static void restart(void) {
  avr_reset(avr);
  twi_reset(&bus);
  avr->data[SPL] = avr->data[SPH] = 0;
  sketch_tail = sketch_head;
  held_until = avr->cycle + (avr_cycle_count_t)(set.boot_ms * CYCLES_PER_MS);
  boots++;
}

static int run_until(avr_cycle_count_t end) {
  while (avr->cycle < end) {
    if (avr->cycle < held_until) { /* the boot loader listens and throws away what it does not know */
      avr->cycle = held_until < end ? held_until : end;
      sketch_tail = sketch_head;
      continue;
    }
    const int state = avr_run(avr);
    if (state == cpu_Done || state == cpu_Crashed) return 1;
    const unsigned stack = avr->data[SPL] | avr->data[SPH] << 8;
    if (stack > 0x200 && stack < lowest_stack) lowest_stack = stack;
    uart->cycles_per_byte = 10 * bit_cycles(); /* simavr counts a parity bit too */
    receive();
  }
  return 0;
}

static void run_script(void) {
  FILE *script = fopen(set.script, "r");
  char text[256];
  double at = -1;
  int more = script != NULL;
  while (now_ms() < set.run_ms) {
    if (more && at < 0) more = fscanf(script, "%lf %255[^\n]", &at, text) == 2;
    if (more && now_ms() >= at) {
      for (const char *c = text; *c; c++) queue((uint8_t)*c);
      queue('\n');
      at = -1;
      continue;
    }
    events();
    if (run_until(avr->cycle + CYCLES_PER_MS / 10)) break;
  }
}

static double wall_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void open_terminal(void) {
  struct termios raw;
  terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || grantpt(terminal) || unlockpt(terminal)) exit(1);
  const int other = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  tcgetattr(other, &raw);
  cfmakeraw(&raw);
  tcsetattr(other, TCSANOW, &raw);
  if (set.reset_on_open) close(other); /* then a client that opens it can be told from none */
  fcntl(terminal, F_SETFL, O_NONBLOCK);
  printf("%s\n", ptsname(terminal));
  fflush(stdout);
}

static void exchange(void) {
  static int was_open;
  uint8_t data[512];
  struct pollfd look = {terminal, POLLIN, 0};
  poll(&look, 1, 0);
  const int is_open = !(look.revents & POLLHUP);
  if (set.reset_on_open && is_open && !was_open) restart(); /* DTR */
  was_open = is_open;
  const ssize_t got = look.revents & POLLIN ? read(terminal, data, sizeof data) : 0;
  for (ssize_t i = 0; i < got; i++) queue(data[i]);
  if (!is_open) host_count = 0;
  const ssize_t put = host_count ? write(terminal, to_host, host_count) : 0;
  if (put > 0) {
    host_count -= (unsigned)put;
    memmove(to_host, to_host + put, host_count);
  }
}

static void run_in_real_time(void) {
  const double began = wall_ms() - now_ms();
  for (;;) {
    struct pollfd end = {0, POLLIN, 0};
    if (poll(&end, 1, 0) != 0) return;
    exchange();
    events();
    if (run_until(avr->cycle + CYCLES_PER_MS / 4)) return;
    const double ahead = now_ms() - (wall_ms() - began);
    if (ahead > 0) usleep((useconds_t)(ahead * 1000));
  }
}

static void say_nothing(avr_t *who, const int level, const char *format, va_list values) {
  (void)who;
  (void)level;
  (void)format;
  (void)values;
}

int main(int argc, char **argv) {
  elf_firmware_t firmware = {0};
  avr_global_logger_set(say_nothing); /* simavr's own words would mix with ours */
  if (argc < 2 || elf_read_firmware(argv[1], &firmware)) return 2;
  for (int i = 2; i < argc; i++) option(argv[i]);
  avr = avr_make_mcu_by_name("atmega328p");
  if (!avr) return 2;
  avr_init(avr);
  avr->frequency = CLOCK_HZ;
  avr->log = LOG_NONE;
  avr_load_firmware(avr, &firmware);
  avr->frequency = CLOCK_HZ;
  for (avr_io_t *io = avr->io_port; io; io = io->next)
    if (!strcmp(io->kind, "uart")) uart = (avr_uart_t *)io;
  uint32_t flags = 0; /* print nothing, and never sleep while the sketch polls */
  avr_ioctl(avr, AVR_IOCTL_UART_SET_FLAGS('0'), &flags);
  uart_input = avr_io_getirq(avr, AVR_IOCTL_UART_GETIRQ('0'), UART_IRQ_INPUT);
  sync_pin = avr_io_getirq(avr, AVR_IOCTL_IOPORT_GETIRQ('D'), 7);
  avr_irq_register_notify(avr_io_getirq(avr, AVR_IOCTL_UART_GETIRQ('0'), UART_IRQ_OUTPUT), sent, NULL);
  twi_connect(&bus, avr);
  if (set.script) {
    run_script();
  } else {
    open_terminal();
    run_in_real_time();
  }
  printf("{\"cycles\": %llu, \"lowest_stack\": %u, \"baud\": %.3f, \"scl_hz\": %u, \"tx_bytes\": %lu,"
         " \"transfers\": %u, \"boots\": %lu, \"host_lost\": %lu, \"watchdog\": %u}\n",
         (unsigned long long)avr->cycle, lowest_stack, (double)CLOCK_HZ / bit_cycles(), scl_hz(avr), tx_bytes,
         bus.transfers, boots, host_lost, avr->data[WDTCSR]);
  return 0;
}
