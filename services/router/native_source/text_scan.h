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
    /* Those of the events whose text is not empty. */
    int texts;
    /* The content of the present event, with its quotes. */
    const unsigned char *content, *content_end;
    /* How many objects and arrays it is inside of. */
    int depth;
    /* Whether the event has had its choices, its delta and its content. */
    int has_choices, has_delta, has_content;
} Scan;

/* Used with the interpreter's lock held, and only within one call. */
extern unsigned char text_buffer[MOST_BYTES];
extern unsigned char json_buffer[PACKED_HEAD_BYTES + MOST_BYTES];

/* What the events of a stream have in common: all but the content. A scan of the same bytes ends in the same state. */
typedef struct {
    const unsigned char *head, *tail;
    size_t head_bytes, tail_bytes;
} EventShape;

/* Begins a scan of a body. */
void begin_scan(Scan *scan, const unsigned char *begin, Py_ssize_t size);

/* Reads one event up to its blank line; returns 0 to decline, with the texts as they were. `shape` is that of the event
 * before, and becomes that of this one; it is empty at first. */
int scan_event(Scan *scan, EventShape *shape);

/* Scans a read, after room for a packed head in `json_buffer`; returns the bytes of its body, or 0 to decline. */
Py_ssize_t scan_read(Scan *scan, const unsigned char *begin, Py_ssize_t size);

/* Returns the text that was scanned; NULL to decline, or with an exception. */
PyObject *decode_text(const Scan *scan);

#endif
