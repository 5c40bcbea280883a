/* Recorded times, and their percentiles as JSON. */
#ifndef TIMES_H
#define TIMES_H

#include "wire.h"

struct times {
    uint32_t *us;
    size_t count, capacity;
};

static inline void note(struct times *times, uint64_t us) {
    if (times->count == times->capacity) {
        times->capacity = times->capacity ? 2 * times->capacity : 65536;
        times->us = realloc(times->us, times->capacity * sizeof *times->us);
        if (!times->us) fail("memory");
    }
    times->us[times->count++] = us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

static inline int compare(const void *one, const void *other) {
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return a < b ? -1 : a > b;
}

static inline void print_times(const char *name, struct times *times) {
    if (!times->count) {
        printf(",\"%s\":null", name);
        return;
    }
    qsort(times->us, times->count, sizeof *times->us, compare);
    printf(",\"%s\":{\"p50\":%.3f,\"p99\":%.3f,\"max\":%.3f}", name, times->us[times->count / 2] / 1e3,
           times->us[times->count * 99 / 100] / 1e3, times->us[times->count - 1] / 1e3);
}

#endif
