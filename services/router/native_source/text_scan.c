/* Recognizes a read of a streamed answer that has nothing but texts, which most reads are.
 *
 * Such a read is HTTP chunks, each with whole events, each of which is one completion chunk whose only choice has a text
 * and has not finished. For those this gives the same result as the parsers in Python, without an object for each step.
 * Whatever it is not sure of it declines: then the parsers read it, and report what is wrong. So it accepts less than JSON,
 * HTTP and the format allow, and never more. */
#include "text_scan.h"

#include <string.h>

/* A read with more events than a piece may have is not worth it, nor is an event that is long, deep or has long figures.
 * The parsers refuse one of 60,000 bytes if it has too many objects, which are not counted here. */
#define MOST_EVENTS 128
#define MOST_EVENT_BYTES 32768
#define MOST_DEPTH 8
#define MOST_DIGITS 15

unsigned char text_buffer[MOST_BYTES];
unsigned char json_buffer[PACKED_HEAD_BYTES + MOST_BYTES];

/* Reads the value of one member of an object. Like all that follow, returns 0 to decline. */
typedef int (*ReadMember)(Scan *, const unsigned char *name, size_t size);

static int
take(Scan *scan, char expected)
{
    if (scan->at >= scan->end || *scan->at != (unsigned char)expected)
        return 0;
    scan->at++;
    return 1;
}

static int
take_word(Scan *scan, const char *word)
{
    size_t size = strlen(word);
    if ((size_t)(scan->end - scan->at) < size || memcmp(scan->at, word, size) != 0)
        return 0;
    scan->at += size;
    return 1;
}

static void
skip_spaces(Scan *scan)
{
    while (scan->at < scan->end && *scan->at == ' ')
        scan->at++;
}

/* Skips a string of plain ASCII, such as the names and the ids of a server. */
static int
skip_plain_string(Scan *scan, const unsigned char **begin, size_t *size)
{
    if (!take(scan, '"'))
        return 0;
    *begin = scan->at;
    while (scan->at < scan->end && *scan->at != '"') {
        if (*scan->at < 0x20 || *scan->at >= 0x80 || *scan->at == '\\')
            return 0;
        scan->at++;
    }
    *size = (size_t)(scan->at - *begin);
    return take(scan, '"');
}

static int
skip_digits(Scan *scan)
{
    const unsigned char *begin = scan->at;
    while (scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9')
        scan->at++;
    return scan->at > begin && scan->at - begin <= MOST_DIGITS;
}

static int
skip_number(Scan *scan)
{
    take(scan, '-');
    if (!take(scan, '0') && !skip_digits(scan))
        return 0;
    return !take(scan, '.') || skip_digits(scan);
}

static int
read_object(Scan *scan, ReadMember read_member)
{
    const unsigned char *name;
    size_t size;
    if (!take(scan, '{') || ++scan->depth > MOST_DEPTH)
        return 0;
    skip_spaces(scan);
    if (!take(scan, '}')) {
        do {
            skip_spaces(scan);
            if (!skip_plain_string(scan, &name, &size))
                return 0;
            skip_spaces(scan);
            if (!take(scan, ':'))
                return 0;
            skip_spaces(scan);
            if (!read_member(scan, name, size))
                return 0;
            skip_spaces(scan);
        } while (take(scan, ','));
        if (!take(scan, '}'))
            return 0;
    }
    scan->depth--;
    return 1;
}

static int skip_value(Scan *scan);

static int
skip_member(Scan *scan, const unsigned char *Py_UNUSED(name), size_t Py_UNUSED(size))
{
    return skip_value(scan);
}

static int
skip_array(Scan *scan)
{
    if (!take(scan, '[') || ++scan->depth > MOST_DEPTH)
        return 0;
    skip_spaces(scan);
    if (!take(scan, ']')) {
        do {
            skip_spaces(scan);
            if (!skip_value(scan))
                return 0;
            skip_spaces(scan);
        } while (take(scan, ','));
        if (!take(scan, ']'))
            return 0;
    }
    scan->depth--;
    return 1;
}

static int
skip_value(Scan *scan)
{
    const unsigned char *string;
    size_t size;
    if (scan->at >= scan->end)
        return 0;
    switch (*scan->at) {
    case '"':
        return skip_plain_string(scan, &string, &size);
    case 'n':
        return take_word(scan, "null");
    case 't':
        return take_word(scan, "true");
    case 'f':
        return take_word(scan, "false");
    case '[':
        return skip_array(scan);
    case '{':
        return read_object(scan, skip_member);
    default:
        return skip_number(scan);
    }
}

static int
is_named(const unsigned char *name, size_t size, const char *expected)
{
    return size == strlen(expected) && memcmp(name, expected, size) == 0;
}

static int
hex_digit(unsigned char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}

/* Reads the four digits of an escaped character beyond ASCII, up to U+FFFF, and writes it to both results. */
static int
read_escaped_character(Scan *scan)
{
    unsigned int character = 0;
    if (scan->end - scan->at < 4)
        return 0;
    for (int place = 0; place < 4; place++) {
        int digit = hex_digit(*scan->at++);
        if (digit < 0)
            return 0;
        character = character << 4 | (unsigned int)digit;
    }
    if (character < 0x80 || (character >= 0xd800 && character <= 0xdfff))
        return 0;
    unsigned char encoded[3];
    size_t size = 0;
    if (character < 0x800) {
        encoded[size++] = (unsigned char)(0xc0 | character >> 6);
    } else {
        encoded[size++] = (unsigned char)(0xe0 | character >> 12);
        encoded[size++] = (unsigned char)(0x80 | (character >> 6 & 0x3f));
    }
    encoded[size++] = (unsigned char)(0x80 | (character & 0x3f));
    memcpy(scan->text_end, encoded, size);
    memcpy(scan->json_end, encoded, size);
    scan->text_end += size;
    scan->json_end += size;
    return 1;
}

static int
read_escape(Scan *scan)
{
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (scan->at >= scan->end)
        return 0;
    unsigned char name = *scan->at++;
    if (name == 'u')
        return read_escaped_character(scan);
    const char *found = memchr(names, name, sizeof names - 1);
    if (found == NULL)
        return 0;
    *scan->text_end++ = (unsigned char)meanings[found - names];
    if (name != '/')
        *scan->json_end++ = '\\';
    *scan->json_end++ = name;
    return 1;
}

/* Reads a text; an empty one is left out. The texts are checked to be UTF-8 once they are joined; one that begins with the
 * rest of a character could be valid then without being so itself. */
static int
read_content(Scan *scan)
{
    unsigned char *text_begin = scan->text_end, *json_begin = scan->json_end;
    scan->content = scan->at;
    if (scan->has_content++ || !take(scan, '"'))
        return 0;
    if (scan->at < scan->end && *scan->at >= 0x80 && *scan->at < 0xc0)
        return 0;
    if (scan->texts)
        *scan->json_end++ = '\n';
    *scan->json_end++ = '"';
    while (scan->at < scan->end && *scan->at != '"') {
        unsigned char byte = *scan->at++;
        if (byte < 0x20)
            return 0;
        if (byte == '\\') {
            if (!read_escape(scan))
                return 0;
        } else {
            *scan->text_end++ = byte;
            *scan->json_end++ = byte;
        }
    }
    *scan->json_end++ = '"';
    if (!take(scan, '"'))
        return 0;
    scan->content_end = scan->at;
    if (scan->text_end > text_begin)
        scan->texts++;
    else
        scan->json_end = json_begin;
    return 1;
}

static int
read_delta_member(Scan *scan, const unsigned char *name, size_t size)
{
    if (is_named(name, size, "content"))
        return read_content(scan);
    if (is_named(name, size, "refusal") || is_named(name, size, "reasoning_content") ||
        is_named(name, size, "reasoning") || is_named(name, size, "tool_calls"))
        return take_word(scan, "null");
    if (is_named(name, size, "annotations"))
        return take_word(scan, "null") || take_word(scan, "[]");
    return skip_value(scan);
}

static int
read_choice_member(Scan *scan, const unsigned char *name, size_t size)
{
    if (is_named(name, size, "delta"))
        return !scan->has_delta++ && read_object(scan, read_delta_member);
    if (is_named(name, size, "message") || is_named(name, size, "finish_reason") || is_named(name, size, "usage"))
        return take_word(scan, "null");
    return skip_value(scan);
}

static int
read_completion_member(Scan *scan, const unsigned char *name, size_t size)
{
    const unsigned char *kind;
    size_t kind_size;
    if (is_named(name, size, "choices")) {
        if (scan->has_choices++ || !take(scan, '['))
            return 0;
        skip_spaces(scan);
        if (!read_object(scan, read_choice_member))
            return 0;
        skip_spaces(scan);
        return take(scan, ']');
    }
    if (is_named(name, size, "object"))
        return skip_plain_string(scan, &kind, &kind_size) && !is_named(kind, kind_size, "error");
    if (is_named(name, size, "usage") || is_named(name, size, "error") || is_named(name, size, "x_groq"))
        return take_word(scan, "null");
    return skip_value(scan);
}

/* Reads the JSON of one event, up to its end. */
static int
read_completion(Scan *scan)
{
    const unsigned char *begin = scan->at;
    scan->has_choices = scan->has_delta = scan->has_content = scan->depth = 0;
    if (!read_object(scan, read_completion_member) || scan->at - begin > MOST_EVENT_BYTES)
        return 0;
    return scan->has_content;
}

/* Reads an event that differs from the one before by its content alone. */
static int
read_similar_event(Scan *scan, const EventShape *shape)
{
    size_t most_bytes = (size_t)(scan->end - scan->at);
    if (!shape->head_bytes || most_bytes < shape->head_bytes || memcmp(scan->at, shape->head, shape->head_bytes) != 0)
        return 0;
    const unsigned char *begin = scan->at;
    scan->at += shape->head_bytes;
    scan->has_content = 0;
    if (!read_content(scan) || (size_t)(scan->end - scan->at) < shape->tail_bytes ||
        memcmp(scan->at, shape->tail, shape->tail_bytes) != 0)
        return 0;
    scan->at += shape->tail_bytes;
    return scan->at - begin <= MOST_EVENT_BYTES;
}

static int
read_other_event(Scan *scan, EventShape *shape)
{
    const unsigned char *begin = scan->at;
    if (!take_word(scan, "data:"))
        return 0;
    take(scan, ' ');
    if (!read_completion(scan) || !take_word(scan, "\n\n"))
        return 0;
    shape->head = begin;
    shape->head_bytes = (size_t)(scan->content - begin);
    shape->tail = scan->content_end;
    shape->tail_bytes = (size_t)(scan->at - scan->content_end);
    return 1;
}

int
scan_event(Scan *scan, EventShape *shape)
{
    Scan before = *scan;
    if (!read_similar_event(scan, shape)) {
        *scan = before;
        if (!read_other_event(scan, shape)) {
            *scan = before;
            return 0;
        }
    }
    return ++scan->events <= MOST_EVENTS;
}

/* Returns where the data of the HTTP chunk ends that begins here, and moves on to where it begins; NULL to decline. */
static const unsigned char *
scan_chunk_size(Scan *scan)
{
    Py_ssize_t size = 0;
    int digit, digits = 0;
    while (scan->at < scan->end && (digit = hex_digit(*scan->at)) >= 0) {
        size = size << 4 | digit;
        scan->at++;
        if (++digits > 5)
            return NULL;
    }
    if (!digits || !size || !take_word(scan, "\r\n") || scan->end - scan->at < size)
        return NULL;
    return scan->at + size;
}

PyObject *
decode_text(const Scan *scan)
{
    PyObject *text = PyUnicode_DecodeUTF8((char *)text_buffer, scan->text_end - text_buffer, NULL);
    if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        PyErr_Clear();
    return text;
}

void
begin_scan(Scan *scan, const unsigned char *begin, Py_ssize_t size)
{
    const unsigned char *end = begin + size;
    *scan = (Scan){.at = begin, .end = end, .text_end = text_buffer, .json_end = json_buffer + PACKED_HEAD_BYTES};
}

Py_ssize_t
scan_read(Scan *scan, const unsigned char *begin, Py_ssize_t size)
{
    const unsigned char *end = begin + size;
    Py_ssize_t body_bytes = 0;
    EventShape shape = {0};
    begin_scan(scan, begin, size);
    if (size > MOST_BYTES)
        return 0;
    while (scan->at < end) {
        const unsigned char *chunk_end = scan_chunk_size(scan);
        if (chunk_end == NULL)
            return 0;
        body_bytes += chunk_end - scan->at;
        scan->end = chunk_end;
        while (scan->at < chunk_end)
            if (!scan_event(scan, &shape))
                return 0;
        scan->end = end;
        if (!take_word(scan, "\r\n"))
            return 0;
    }
    return scan->texts ? body_bytes : 0;
}
