/* A stand-in for libusb with one device on the bus that sends a packet every 200 us, by the real clock or by
 * one that stands still unless a test moves it or somebody waits.
 *
 * Only what touches the device is replaced; Python takes the rest from the real library. There is no thread:
 * each call first works out what kernel and device have done since the last one. A packet that finds a queued
 * transfer fills it; one that finds none waits in the device, which keeps 13 (2.6 ms), drops the oldest
 * beyond that and counts it, and sends up to three together, as the vendor's firmware does.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#define PERIOD_NS 200000
#define DEPTH 13
#define PER_PACKET 3
#define OBSERVATION 18
#define HEADER 4
#define REAP_MAX 25 /* what libusb takes from a device before it looks at the clock again */
#define TRANSFERS_MAX 1024

enum { COMPLETED, ERROR, TIMED_OUT, CANCELLED, STALL, NO_DEVICE, OVERFLOW };
enum { ERROR_NO_DEVICE = -4, ERROR_NOT_FOUND = -5, ERROR_BUSY = -6, ERROR_TIMEOUT = -7 };

struct transfer { /* struct libusb_transfer, the part that all versions share */
    void *handle;
    uint8_t flags;
    unsigned char endpoint, type;
    unsigned int timeout;
    int status, length, actual_length;
    void (*callback)(struct transfer *);
    void *user_data;
    unsigned char *buffer;
};

static struct transfer *pending[TRANSFERS_MAX], *done[TRANSFERS_MAX];
static int n_pending, n_done;
static int64_t next_ns;
static uint32_t made, ring_first; /* observations made; the oldest one in the device */
static uint16_t dropped;
static uint8_t sequence;
static int running, fail_status, fail_after = -1, fail_events;
static int opened, claimed, allocated;

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; /* callbacks submit again */

static int64_t still_ns; /* the test's clock; 0 for the real one */

static int64_t now_ns(void) {
    struct timespec t;
    if (still_ns) return still_ns;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void finish(int i, int status, int length) {
    struct transfer *t = pending[i];
    memmove(pending + i, pending + i + 1, (--n_pending - i) * sizeof *pending);
    t->status = status;
    t->actual_length = length;
    done[n_done++] = t;
}

static void fill(void) {
    while (n_pending && fail_after) {
        int count = made - ring_first < PER_PACKET ? made - ring_first : PER_PACKET;
        if (!count) return;
        if (fail_after > 0) fail_after--;
        unsigned char *b = pending[0]->buffer;
        memcpy(b, &dropped, 2);
        b[2] = sequence++ & 15;
        b[3] = count;
        memset(b + HEADER, 0, count * OBSERVATION);
        for (int i = 0; i < count; i++, ring_first++) memcpy(b + HEADER + i * OBSERVATION, &ring_first, 4);
        finish(0, COMPLETED, HEADER + count * OBSERVATION);
    }
    if (fail_after == 0) while (n_pending) finish(0, fail_status, 0);
}

static void pass_time(void) {
    for (int64_t now = now_ns(); running && next_ns <= now; next_ns += PERIOD_NS) {
        made++;
        fill();
        if (made - ring_first > DEPTH) { ring_first++; if (dropped < 0xffff) dropped++; }
    }
    fill();
}

/* For tests: what happens. */
void stand_in_stop_the_clock(void) { still_ns = 1000000000; }
void stand_in_pass_us(int us) { still_ns += us * 1000LL; pass_time(); }
void stand_in_start(void) {
    made = ring_first = 0; dropped = 0; sequence = 0; next_ns = now_ns() + PERIOD_NS; running = 1; fail_after = -1;
}
void stand_in_stop(void) {
    pthread_mutex_lock(&lock);
    pass_time();
    running = 0;
    ring_first = made;
    pthread_mutex_unlock(&lock);
}
void stand_in_fail(int status, int after_packets) { fail_status = status; fail_after = after_packets; }
void stand_in_fail_events(int error) { fail_events = error; }
void stand_in_swap(void) { /* the two oldest completions change places */
    if (n_done > 1) { struct transfer *t = done[0]; done[0] = done[1]; done[1] = t; }
}
int stand_in_made(void) { return made; }
int stand_in_under_way(void) { return n_pending + n_done; }
int stand_in_allocated(void) { return allocated; }
int stand_in_open(void) { return opened + claimed; }

int libusb_submit_transfer(struct transfer *t) {
    int result = 0;
    pthread_mutex_lock(&lock);
    pass_time();
    if (fail_after == 0 && fail_status == NO_DEVICE) result = ERROR_NO_DEVICE;
    else if (n_pending + n_done >= TRANSFERS_MAX) result = ERROR_BUSY;
    else pending[n_pending++] = t;
    fill();
    pthread_mutex_unlock(&lock);
    return result;
}

int libusb_cancel_transfer(struct transfer *t) {
    int result = ERROR_NOT_FOUND;
    pthread_mutex_lock(&lock);
    pass_time();
    for (int i = 0; i < n_pending && result; i++)
        if (pending[i] == t) { finish(i, CANCELLED, 0); result = 0; }
    pthread_mutex_unlock(&lock);
    return result;
}

int libusb_handle_events_timeout(void *context, struct timeval *tv) {
    int64_t end = now_ns() + tv->tv_sec * 1000000000LL + tv->tv_usec * 1000LL;
    pthread_mutex_lock(&lock);
    for (;;) {
        pass_time();
        int64_t now = now_ns();
        if (n_done || now >= end) break;
        int64_t until = running && next_ns < end ? next_ns : end;
        struct timespec t = {until / 1000000000, until % 1000000000};
        if (still_ns) { still_ns = until; continue; }
        pthread_mutex_unlock(&lock);
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
        pthread_mutex_lock(&lock);
    }
    for (int i = 0; n_done && i < REAP_MAX; i++) {
        struct transfer *t = done[0];
        memmove(done, done + 1, --n_done * sizeof *done);
        t->callback(t);
    }
    pthread_mutex_unlock(&lock);
    return fail_events;
}

int libusb_handle_events(void *context) {
    struct timeval tv = {60, 0};
    return libusb_handle_events_timeout(context, &tv);
}

static void noted(struct transfer *t) { *(int *)t->user_data = 1; }

int libusb_bulk_transfer(void *handle, unsigned char endpoint, unsigned char *data, int length, int *moved,
                         unsigned int timeout_ms) {
    int ended = 0;
    struct transfer t = {handle, 0, endpoint, 2, 0, 0, length, 0, noted, &ended, data};
    int result = libusb_submit_transfer(&t);
    struct timeval tv = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
    if (!result) libusb_handle_events_timeout(NULL, &tv);
    if (!result && !ended) { libusb_cancel_transfer(&t); libusb_handle_events_timeout(NULL, &tv); }
    *moved = t.actual_length;
    return result ? result : t.status == CANCELLED ? ERROR_TIMEOUT : t.status == NO_DEVICE ? ERROR_NO_DEVICE : 0;
}

/* The one device, and what a driver asks of it before it reads. */
static int the_device, the_handle;

long libusb_get_device_list(void *context, void ***list) {
    *list = calloc(2, sizeof **list);
    (*list)[0] = &the_device;
    return 1;
}
void libusb_free_device_list(void **list, int unref) { free(list); }
int libusb_get_device_descriptor(void *device, unsigned char *d) {
    static const unsigned char descriptor[18] = {18, 1, 0, 2, 255, 0, 0, 64, 0xb9, 0x2a, 1, 0, 0, 1, 1, 2, 3, 1};
    memcpy(d, descriptor, sizeof descriptor);
    return 0;
}
int libusb_get_config_descriptor(void *device, uint8_t i, void **config) { return ERROR_NOT_FOUND; }
void *libusb_ref_device(void *device) { return device; }
void libusb_unref_device(void *device) {}
uint8_t libusb_get_bus_number(void *device) { return 1; }
uint8_t libusb_get_port_number(void *device) { return 1; }
uint8_t libusb_get_device_address(void *device) { return 2; }
int libusb_open(void *device, void **handle) { *handle = &the_handle; opened++; return 0; }
void libusb_close(void *handle) { opened--; claimed = 0; }
int libusb_set_auto_detach_kernel_driver(void *handle, int enable) { return 0; }
int libusb_get_configuration(void *handle, int *configuration) { *configuration = 1; return 0; }
int libusb_claim_interface(void *handle, int i) { if (claimed) return ERROR_BUSY; claimed = 1; return 0; }
int libusb_control_transfer(void *handle, uint8_t type, uint8_t request, uint16_t value, uint16_t index,
                            unsigned char *data, uint16_t length, unsigned int timeout_ms) {
    struct timeval tv = {0, 1000};
    libusb_handle_events_timeout(NULL, &tv); /* as the real one does while it waits */
    memset(data, 0, length);
    return length;
}
int libusb_get_string_descriptor_ascii(void *handle, uint8_t i, unsigned char *text, int size) {
    const char *found = i == 3 ? "20001" : "stand-in";
    memcpy(text, found, strlen(found));
    return strlen(found);
}
struct transfer *libusb_alloc_transfer(int packets) { allocated++; return calloc(1, 256); }
void libusb_free_transfer(struct transfer *t) { allocated--; free(t); }
