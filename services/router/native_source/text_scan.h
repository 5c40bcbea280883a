/* Recognizes texts in a streamed answer: see text_scan.c. */
#ifndef LEGATO_TEXT_SCAN_H
#define LEGATO_TEXT_SCAN_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* A longer read is not worth it. */
#define MOST_BYTES 65536
/* A zero byte and two numbers: services/chassis/packed_pieces.py. */
#define PACKED_HEAD_BYTES 17

typedef struct {
    const unsigned char *at;
    /* The end of the HTTP chunk. */
    const unsigned char *end;
    /* The texts in UTF-8; and as JSON strings with line breaks between them. Neither grows longer than the read. */
    unsigned char *text_end;
    unsigned char *json_end;
    int events;
    /* How many objects and arrays it is inside of. */
    int depth;
    /* Whether the event has had its choices, its delta and its content. */
    int has_choices, has_delta, has_content;
} Scan;

/* Used with the interpreter's lock held, and only within one call. */
extern unsigned char text_buffer[MOST_BYTES];
extern unsigned char json_buffer[PACKED_HEAD_BYTES + MOST_BYTES];

/* Scans a read, after room for a packed head in `json_buffer`; returns the bytes of its body, or 0 to decline. */
Py_ssize_t scan_read(Scan *scan, const unsigned char *begin, Py_ssize_t size);

/* Scans the JSON of one event, of MOST_BYTES at most; returns 0 to decline. */
int scan_event_json(Scan *scan, const unsigned char *begin, Py_ssize_t size);

/* Returns the text that was scanned; NULL to decline, or with an exception. */
PyObject *decode_text(const Scan *scan);

#endif
