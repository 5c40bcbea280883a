/* Shared by the mock upstream and the load: a growing buffer, the clock, and the timestamps in chunks. */
#ifndef WIRE_H
#define WIRE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The answer to every chat that is not streamed. */
#define WHOLE_ANSWER \
    "Rain at first, then a dry afternoon with a light wind from the west, and towards the evening some sun over the " \
    "river. Tomorrow will be much the same, only that it may begin a little later, as it so often does here."

/* Each chunk's text is the time at which it was written, in microseconds, as five base-64 digits: about as long as a
 * token. A reader on the same machine computes the latency from it. It wraps every 17 minutes, longer than any
 * latency. */
enum { STAMP_CHARACTERS = 5, STAMP_BITS = 30 };
#define STAMP_MASK ((1u << STAMP_BITS) - 1)

static const char stamp_digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

static inline uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint32_t stamp_of(uint64_t moment_ns) { return (uint32_t)(moment_ns / 1000) & STAMP_MASK; }

static inline void write_stamp(char *text, uint32_t stamp) {
    for (int digit = STAMP_CHARACTERS - 1; digit >= 0; digit--, stamp >>= 6) text[digit] = stamp_digits[stamp & 63];
}

static inline void fail(const char *what) {
    perror(what);
    exit(1);
}

struct bytes {
    char *data; /* Zero-terminated, so that it can be searched as a string. */
    size_t length, capacity;
};

static inline void append(struct bytes *bytes, const char *data, size_t length) {
    if (bytes->length + length + 1 > bytes->capacity) {
        bytes->capacity = 2 * (bytes->length + length + 1);
        bytes->data = realloc(bytes->data, bytes->capacity);
        if (!bytes->data) fail("memory");
    }
    memcpy(bytes->data + bytes->length, data, length);
    bytes->length += length;
    bytes->data[bytes->length] = 0;
}

static inline void append_text(struct bytes *bytes, const char *text) { append(bytes, text, strlen(text)); }

#endif
