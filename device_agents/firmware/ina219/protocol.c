#include "protocol.h"

/* A line under construction; `full` once something did not fit. */
typedef struct {
  char *out;
  size_t size;
  size_t used;
  int full;
} writer;

uint16_t ina_crc16(const char *data, size_t length) {
  uint16_t crc = 0xFFFF;
  size_t i;
  for (i = 0; i < length; i++) {
    /* The eight steps of a byte at once, without a table: bit by bit an 8-bit controller needs 0.4 ms a line. */
    uint8_t x = (uint8_t)((crc >> 8) ^ (uint8_t)data[i]);
    x = (uint8_t)(x ^ (x >> 4));
    crc = (uint16_t)((uint16_t)(crc << 8) ^ (uint16_t)((uint16_t)x << 12) ^ (uint16_t)((uint16_t)x << 5) ^ x);
  }
  return crc;
}

static void put_char(writer *w, char c) {
  if (w->used < w->size) {
    w->out[w->used++] = c;
  } else {
    w->full = 1;
  }
}

static void put_text(writer *w, const char *text) {
  while (*text) {
    put_char(w, *text++);
  }
}

/* Inside a JSON string: what would need escaping is left out. */
static void put_name(writer *w, const char *text) {
  for (; *text; text++) {
    if (*text >= ' ' && *text <= '~' && *text != '"' && *text != '\\') {
      put_char(w, *text);
    }
  }
}

/* By subtraction: a division of 32 bits takes an 8-bit controller 40 us, and a line has up to 25 digits. */
static void put_unsigned(writer *w, uint32_t value) {
  static const uint32_t tens[9] = {1000000000u, 100000000u, 10000000u, 1000000u, 100000u, 10000u, 1000u, 100u, 10u};
  uint8_t i, begun = 0;
  for (i = 0; i < 9; i++) {
    char digit = '0';
    while (value >= tens[i]) {
      value -= tens[i];
      digit++;
    }
    begun = (uint8_t)(begun | (digit != '0'));
    if (begun) {
      put_char(w, digit);
    }
  }
  put_char(w, (char)('0' + value));
}

static void put_signed(writer *w, int32_t value) {
  if (value < 0) {
    put_char(w, '-');
    put_unsigned(w, (uint32_t)-value);
  } else {
    put_unsigned(w, (uint32_t)value);
  }
}

static void put_hex(writer *w, uint16_t value, int digits) {
  while (digits--) {
    put_char(w, "0123456789ABCDEF"[(value >> (4 * digits)) & 0xF]);
  }
}

static void put_key(writer *w, const char *key, uint32_t value) {
  put_text(w, ",\"");
  put_text(w, key);
  put_text(w, "\":");
  put_unsigned(w, value);
}

static void put_comma(writer *w, uint32_t value) {
  put_char(w, ',');
  put_unsigned(w, value);
}

static size_t seal(writer *w) {
  const uint16_t crc = ina_crc16(w->out, w->used);
  put_char(w, '*');
  put_hex(w, crc, 4);
  put_char(w, '\n');
  return w->full ? 0 : w->used;
}

size_t ina_format_header(char *out, size_t size, const ina_header *header) {
  writer w = {out, size, 0, 0};
  put_text(&w, "#H{\"proto\":\"joulefleet-ina219\",\"ver\":1,\"fw\":\"");
  put_name(&w, header->fw);
  put_text(&w, "\",\"uid\":\"");
  put_name(&w, header->uid);
  put_text(&w, "\",\"chip\":\"INA219\",\"grade\":\"");
  put_char(&w, header->grade == 'B' ? 'B' : 'A');
  put_char(&w, '"');
  put_key(&w, "addr", header->addr);
  put_key(&w, "rshunt_uohm", header->rshunt_uohm);
  put_key(&w, "rshunt_tol_ppm", header->rshunt_tol_ppm);
  put_key(&w, "config", header->config);
  put_key(&w, "cal", header->cal);
  put_key(&w, "period_us", header->period_us);
  put_key(&w, "clock_hz", 1000000);
  put_text(&w, ",\"columns\":\"seq,t_us,shunt_raw,bus_raw,flags\"");
  put_key(&w, "run", header->run);
  put_key(&w, "t_us", header->t_us);
  put_char(&w, '}');
  return seal(&w);
}

size_t ina_format_sample(char *out, size_t size, const ina_sample *sample) {
  writer w = {out, size, 0, 0};
  put_char(&w, 'D');
  put_comma(&w, sample->seq);
  put_comma(&w, sample->t_us);
  put_char(&w, ',');
  put_signed(&w, sample->shunt_raw);
  put_comma(&w, sample->bus_raw);
  put_char(&w, ',');
  put_hex(&w, sample->flags, sample->flags > 0xF ? 2 : 1);
  return seal(&w);
}

size_t ina_format_pong(char *out, size_t size, uint32_t nonce, uint32_t t_rx_us, uint32_t t_tx_us) {
  writer w = {out, size, 0, 0};
  put_char(&w, 'P');
  put_comma(&w, nonce);
  put_comma(&w, t_rx_us);
  put_comma(&w, t_tx_us);
  return seal(&w);
}

size_t ina_format_counters(char *out, size_t size, const ina_counters *counters) {
  writer w = {out, size, 0, 0};
  put_char(&w, 'E');
  put_comma(&w, counters->overruns);
  put_comma(&w, counters->i2c_errors);
  put_comma(&w, counters->resets);
  put_comma(&w, counters->late);
  return seal(&w);
}

/* A decimal u32 that fills the rest of the line; 0 if it is none. */
static int parse_nonce(const char *text, size_t length, uint32_t *value) {
  size_t i;
  *value = 0;
  for (i = 0; i < length; i++) {
    const uint32_t digit = (uint32_t)(text[i] - '0');
    if (text[i] < '0' || text[i] > '9' || *value > (0xFFFFFFFFu - digit) / 10) {
      return 0;
    }
    *value = *value * 10 + digit;
  }
  return length > 0;
}

static ina_command parse_command(const char *line, size_t length) {
  ina_command command = {INA_NOTHING, 0};
  if (length && line[length - 1] == '\r') {
    length--;
  }
  if (length > 3 && line[0] == '?' && line[1] == 'P' && line[2] == ' ') {
    if (parse_nonce(line + 3, length - 3, &command.nonce)) {
      command.kind = INA_PING;
    }
  } else if (length == 2 && line[0] == '?' && line[1] == 'H') {
    command.kind = INA_ASK_HEADER;
  } else if (length == 2 && line[0] == '?' && line[1] == 'E') {
    command.kind = INA_ASK_COUNTERS;
  } else if (length == 2 && line[0] == '!' && line[1] == 'R') {
    command.kind = INA_RUN;
  } else if (length == 2 && line[0] == '!' && line[1] == 'S') {
    command.kind = INA_STOP;
  }
  return command;
}

ina_command ina_read(ina_reader *reader, char byte) {
  ina_command command = {INA_NOTHING, 0};
  if (byte == '\n') {
    if (reader->length <= sizeof reader->line) {
      command = parse_command(reader->line, reader->length);
    }
    reader->length = 0;
  } else if (reader->length < sizeof reader->line) {
    reader->line[reader->length++] = byte;
  } else {
    reader->length = sizeof reader->line + 1;
  }
  return command;
}

uint16_t ina_config_word(int bus_32v, int pga, int bus_adc, int shunt_adc) {
  const int continuous = 0x7;
  return (uint16_t)((bus_32v ? 0x2000 : 0) | (pga & 0x3) << 11 | (bus_adc & 0xF) << 7 |
                    (shunt_adc & 0xF) << 3 | continuous);
}

/* Typical times of SBOS448G section 7.5; an average takes as many 12-bit conversions. */
static uint32_t adc_us(unsigned code) {
  static const uint16_t single_us[4] = {84, 148, 276, 532};
  return (code & 0x8) ? (uint32_t)532 << (code & 0x7) : single_us[code & 0x3];
}

uint32_t ina_period_us(uint16_t config) {
  return adc_us((config >> 7) & 0xFu) + adc_us((config >> 3) & 0xFu);
}

uint32_t ina_count(ina_pace *pace, uint32_t now_us, uint32_t period_us) {
  const uint32_t since_us = now_us - pace->ended_us;
  uint32_t ended = since_us / period_us;
  if (now_us - pace->busy_us < period_us / 4) {
    /* It ended just now: take the nearest whole number, for the chip's period is only nearly ours. */
    ended += since_us % period_us > period_us / 2 ? 1 : 0;
    pace->ended_us = now_us;
  } else {
    /* We come late: it ended some time ago, and rounding up would count part of the next one. */
    pace->ended_us = ended ? pace->ended_us + ended * period_us : now_us;
  }
  return ended ? ended : 1;
}
