/* The requests of a session, as they are read from files, and the marks in them that are replaced: where a request
 * contains SESSION_MARK it gets digits that no other session has, and for REQUEST_MARK digits that no other request
 * has. */
#ifndef TURNS_H
#define TURNS_H

#include <stdbool.h>

#include "wire.h"

#define SESSION_MARK "%SESSION"
#define REQUEST_MARK "%REQUEST"
enum { MARK_CHARACTERS = 8, TURNS_MOST = 64 };

struct mark {
    size_t place;
    bool is_of_session;
};

struct turn {
    struct bytes request;
    struct mark *marks;
    size_t mark_count;
};

static struct turn turns[TURNS_MOST];
static long turn_count;

/* Writes digits that differ with each call, also between runs. */
static inline void write_digits(char *digits) {
    static uint64_t number;
    if (!number) number = now_ns();
    uint64_t left = ++number * 0x9E3779B97F4A7C15u;
    for (int digit = 0; digit < MARK_CHARACTERS; digit++, left >>= 6) digits[digit] = stamp_digits[left & 63];
}

static inline void write_marked(struct bytes *bytes, const struct turn *turn, const char *session_digits) {
    char request_digits[MARK_CHARACTERS];
    write_digits(request_digits);
    bytes->length = 0;
    append(bytes, turn->request.data, turn->request.length);
    for (size_t index = 0; index < turn->mark_count; index++) {
        const struct mark *mark = &turn->marks[index];
        memcpy(bytes->data + mark->place, mark->is_of_session ? session_digits : request_digits, MARK_CHARACTERS);
    }
}

static inline void find_marks(struct turn *turn) {
    for (char *found = turn->request.data; (found = strchr(found, '%')); found++) {
        bool is_of_session = !strncmp(found, SESSION_MARK, MARK_CHARACTERS);
        if (!is_of_session && strncmp(found, REQUEST_MARK, MARK_CHARACTERS)) continue;
        turn->marks = realloc(turn->marks, (turn->mark_count + 1) * sizeof *turn->marks);
        if (!turn->marks) fail("memory");
        turn->marks[turn->mark_count++] = (struct mark){(size_t)(found - turn->request.data), is_of_session};
    }
}

static inline void read_request(const char *path) {
    static char data[65536];
    if (turn_count == TURNS_MOST) {
        fprintf(stderr, "load: a session has at most %d turns\n", TURNS_MOST);
        exit(2);
    }
    struct turn *turn = &turns[turn_count++];
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    size_t length;
    while ((length = fread(data, 1, sizeof data, file))) append(&turn->request, data, length);
    fclose(file);
    if (!turn->request.length) fail(path);
    find_marks(turn);
}

#endif
