/* What the router does for every chunk of an answer, compiled: with cold caches, Python needs several times as long for it.
 *
 * Everything here is in Python, too, and is the same there: see docs/decisions/0060-compiled-chunks.md. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>
#include <structmember.h>

/* Recognizes a read of a streamed answer that has nothing but texts, which most reads are.
 *
 * Such a read is HTTP chunks, each with whole events, each of which is one completion chunk whose only choice has a text
 * and has not finished. For those this gives the same result as the parsers in Python, without an object for each step.
 * Whatever it is not sure of it declines: then the parsers read it, and report what is wrong. So it accepts less than JSON,
 * HTTP and the format allow, and never more. */

/* A longer read is not worth it. Nor is one with more events than a piece may have, or an event with long figures. */
#define MOST_BYTES 65536
#define MOST_EVENTS 128
/* Counting more would block the event loop for too long. */
#define MOST_TEXT_BYTES 16384
#define MOST_DEPTH 8
/* A zero byte and two numbers: services/chassis/packed_pieces.py. */
#define PACKED_HEAD_BYTES 17
#define MOST_DIGITS 15

typedef struct {
    const unsigned char *at;
    /* The end of the HTTP chunk. */
    const unsigned char *end;
    /* The texts in UTF-8; and as JSON strings with line breaks between them. Neither grows longer than the read. */
    unsigned char *text_end;
    unsigned char *json_end;
    int events;
    /* Whether the event has had its choices, its delta and its content. */
    int has_choices, has_delta, has_content;
} Scan;

/* Used with the interpreter's lock held, and only within one call. */
static unsigned char text_buffer[MOST_BYTES];
static unsigned char json_buffer[PACKED_HEAD_BYTES + MOST_BYTES];

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

static int skip_value(Scan *scan, int depth);

static int
skip_items(Scan *scan, int depth)
{
    if (take(scan, ']'))
        return 1;
    do {
        skip_spaces(scan);
        if (!skip_value(scan, depth))
            return 0;
        skip_spaces(scan);
    } while (take(scan, ','));
    return take(scan, ']');
}

static int
skip_members(Scan *scan, int depth)
{
    const unsigned char *name;
    size_t size;
    if (take(scan, '}'))
        return 1;
    do {
        skip_spaces(scan);
        if (!skip_plain_string(scan, &name, &size))
            return 0;
        skip_spaces(scan);
        if (!take(scan, ':'))
            return 0;
        skip_spaces(scan);
        if (!skip_value(scan, depth))
            return 0;
        skip_spaces(scan);
    } while (take(scan, ','));
    return take(scan, '}');
}

static int
skip_value(Scan *scan, int depth)
{
    const unsigned char *string;
    size_t size;
    if (scan->at >= scan->end || depth >= MOST_DEPTH)
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
        scan->at++;
        skip_spaces(scan);
        return skip_items(scan, depth + 1);
    case '{':
        scan->at++;
        skip_spaces(scan);
        return skip_members(scan, depth + 1);
    default:
        return skip_number(scan);
    }
}

static int
read_object(Scan *scan, ReadMember read_member)
{
    const unsigned char *name;
    size_t size;
    if (!take(scan, '{'))
        return 0;
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
    return take(scan, '}');
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

/* Reads a text that is not empty. The texts are checked to be UTF-8 once they are joined; one that begins with the rest of a
 * character could be valid then without being so itself. */
static int
read_content(Scan *scan)
{
    unsigned char *begin = scan->text_end;
    if (scan->has_content++ || !take(scan, '"'))
        return 0;
    if (scan->at < scan->end && *scan->at >= 0x80 && *scan->at < 0xc0)
        return 0;
    if (scan->events)
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
    return take(scan, '"') && scan->text_end > begin;
}

static int
read_delta_member(Scan *scan, const unsigned char *name, size_t size)
{
    if (is_named(name, size, "content"))
        return read_content(scan);
    if (is_named(name, size, "refusal") || is_named(name, size, "reasoning_content") ||
        is_named(name, size, "reasoning") || is_named(name, size, "tool_calls"))
        return take_word(scan, "null");
    return skip_value(scan, 0);
}

static int
read_choice_member(Scan *scan, const unsigned char *name, size_t size)
{
    if (is_named(name, size, "delta"))
        return !scan->has_delta++ && read_object(scan, read_delta_member);
    if (is_named(name, size, "message") || is_named(name, size, "finish_reason") || is_named(name, size, "usage"))
        return take_word(scan, "null");
    return skip_value(scan, 0);
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
    return skip_value(scan, 0);
}

static int
read_event(Scan *scan)
{
    scan->has_choices = scan->has_delta = scan->has_content = 0;
    if (!take_word(scan, "data:"))
        return 0;
    take(scan, ' ');
    if (!read_object(scan, read_completion_member) || !take_word(scan, "\n\n"))
        return 0;
    return scan->has_content && ++scan->events <= MOST_EVENTS;
}

/* Reads the size of an HTTP chunk, and returns where its data ends; NULL to decline. */
static const unsigned char *
read_chunk_size(Scan *scan)
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

/* Returns the text that was scanned; NULL to decline, or with an exception. */
static PyObject *
decode_text(const Scan *scan)
{
    PyObject *text = PyUnicode_DecodeUTF8((char *)text_buffer, scan->text_end - text_buffer, NULL);
    if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        PyErr_Clear();
    return text;
}

/* Scans a read into the buffers; returns the bytes of its body, or 0 to decline. */
static Py_ssize_t
scan_read(Scan *scan, const unsigned char *begin, Py_ssize_t size)
{
    const unsigned char *end = begin + size;
    Py_ssize_t body_bytes = 0;
    *scan = (Scan){begin, end, text_buffer, json_buffer + PACKED_HEAD_BYTES, 0, 0, 0, 0};
    if (size > MOST_BYTES)
        return 0;
    while (scan->at < end) {
        const unsigned char *chunk_end = read_chunk_size(scan);
        if (chunk_end == NULL)
            return 0;
        body_bytes += chunk_end - scan->at;
        scan->end = chunk_end;
        while (scan->at < chunk_end)
            if (!read_event(scan))
                return 0;
        scan->end = end;
        if (!take_word(scan, "\r\n"))
            return 0;
    }
    return body_bytes;
}

/* Returns the texts of events from a place in a list on, as long as each of them has nothing but a text. */
static PyObject *
read_texts(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *events;
    Py_ssize_t at, until;
    if (!PyArg_ParseTuple(args, "O!nn", &PyList_Type, &events, &at, &until))
        return NULL;
    PyObject *texts = PyList_New(0);
    if (texts == NULL)
        return NULL;
    for (; at >= 0 && at < until && at < PyList_GET_SIZE(events); at++) {
        PyObject *event = PyList_GET_ITEM(events, at);
        if (!PyBytes_Check(event) || PyBytes_GET_SIZE(event) > MOST_BYTES)
            break;
        const unsigned char *begin = (const unsigned char *)PyBytes_AS_STRING(event);
        const unsigned char *end = begin + PyBytes_GET_SIZE(event);
        Scan scan = {begin, end, text_buffer, json_buffer, 0, 0, 0, 0};
        if (!read_object(&scan, read_completion_member) || scan.at != end || !scan.has_content)
            break;
        PyObject *text = decode_text(&scan);
        if (text == NULL) {
            if (PyErr_Occurred())
                goto failed;
            break;
        }
        int appended = PyList_Append(texts, text);
        Py_DECREF(text);
        if (appended < 0)
            goto failed;
    }
    return texts;
failed:
    Py_DECREF(texts);
    return NULL;
}

/* Counts the tokens of a streamed text: the same as RunningCount in prompts/tokens.py, where it is explained. */

#define SHORT_WORD_CHARACTERS 12
#define LONGEST_WORD_CHARACTERS 64

typedef struct {
    PyObject_HEAD
    PyObject *count;
    PyObject *word;
    Py_ssize_t word_tokens;
    Py_ssize_t settled_tokens;
} RunningCount;

static int
is_before_part(Py_UCS4 before, Py_UCS4 after)
{
    int is_lower = before >= 'a' && before <= 'z', is_letter = is_lower || (before >= 'A' && before <= 'Z');
    int is_digit = before >= '0' && before <= '9';
    if (after >= '0' && after <= '9')
        return is_letter;
    if (after >= 'A' && after <= 'Z')
        return is_digit || is_lower;
    if (after >= 'a' && after <= 'z')
        return is_digit;
    if (after == 0x3001 || after == 0x3002 || after == 0xff01 || after == 0xff0c || after == 0xff1a || after == 0xff1b ||
        after == 0xff1f)
        return (before >= 0x3041 && before <= 0x3096) || (before >= 0x30a1 && before <= 0x30fa) ||
               (before >= 0x4e00 && before <= 0x9fff);
    return 0;
}

/* Returns where the last word of a text begins, or its last part if it is long; everything before is final. */
static Py_ssize_t
find_last_word(PyObject *text, Py_ssize_t word_length)
{
    int kind = PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    Py_ssize_t length = PyUnicode_GET_LENGTH(text), begin = length - 1;
    while (begin > 0 && (PyUnicode_READ(kind, data, begin) != ' ' || Py_UNICODE_ISSPACE(PyUnicode_READ(kind, data, begin - 1))))
        begin--;
    if (begin < 0)
        begin = 0;
    if (length - begin <= SHORT_WORD_CHARACTERS)
        return begin;
    Py_ssize_t searched = word_length > SHORT_WORD_CHARACTERS ? word_length - 1 : 0;
    Py_ssize_t first = searched > begin ? searched : begin;
    for (Py_ssize_t at = length - 1; at > first; at--)
        if (is_before_part(PyUnicode_READ(kind, data, at - 1), PyUnicode_READ(kind, data, at)))
            return at;
    return length - begin > LONGEST_WORD_CHARACTERS ? length : begin;
}

static Py_ssize_t
count_tokens(RunningCount *self, PyObject *text)
{
    PyObject *counted = PyObject_CallOneArg(self->count, text);
    if (counted == NULL)
        return -1;
    Py_ssize_t tokens = PyLong_AsSsize_t(counted);
    Py_DECREF(counted);
    return tokens;
}

/* Adds a piece, and returns by how much the count grew; -1 with an exception if it could not be counted. */
static Py_ssize_t
add_piece(RunningCount *self, PyObject *piece)
{
    Py_ssize_t word_length = PyUnicode_GET_LENGTH(self->word), before_tokens = self->word_tokens, settled_tokens = 0;
    PyObject *text = PyUnicode_Concat(self->word, piece);
    if (text == NULL)
        return -1;
    Py_ssize_t begin = find_last_word(text, word_length);
    if (begin) {
        PyObject *settled = PyUnicode_Substring(text, 0, begin), *word = PyUnicode_Substring(text, begin, PY_SSIZE_T_MAX);
        Py_DECREF(text);
        text = word;
        settled_tokens = settled == NULL || word == NULL ? -1 : begin == word_length ? before_tokens : count_tokens(self, settled);
        Py_XDECREF(settled);
    }
    Py_ssize_t word_tokens = settled_tokens < 0 ? -1 : count_tokens(self, text);
    if (word_tokens < 0) {
        Py_XDECREF(text);
        return -1;
    }
    self->settled_tokens += settled_tokens;
    self->word_tokens = word_tokens;
    Py_SETREF(self->word, text);
    return settled_tokens + word_tokens - before_tokens;
}

static PyObject *
new_count(PyTypeObject *type, PyObject *count)
{
    RunningCount *self = (RunningCount *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->count = Py_NewRef(count);
    self->word = PyUnicode_New(0, 0);
    if (self->word == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *
running_count_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named))
{
    PyObject *count;
    if (!PyArg_ParseTuple(args, "O", &count))
        return NULL;
    return new_count(type, count);
}

static void
running_count_dealloc(RunningCount *self)
{
    Py_XDECREF(self->count);
    Py_XDECREF(self->word);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *
running_count_add(RunningCount *self, PyObject *piece)
{
    if (!PyUnicode_Check(piece)) {
        PyErr_SetString(PyExc_TypeError, "A piece is a text.");
        return NULL;
    }
    Py_ssize_t grown_tokens = add_piece(self, piece);
    return grown_tokens < 0 && PyErr_Occurred() ? NULL : PyLong_FromSsize_t(grown_tokens);
}

static PyObject *
running_count_copy(RunningCount *self, PyObject *Py_UNUSED(nothing))
{
    RunningCount *other = (RunningCount *)new_count(Py_TYPE(self), self->count);
    if (other == NULL)
        return NULL;
    Py_SETREF(other->word, Py_NewRef(self->word));
    other->word_tokens = self->word_tokens;
    other->settled_tokens = self->settled_tokens;
    return (PyObject *)other;
}

static PyObject *
running_count_tokens(RunningCount *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(self->settled_tokens + self->word_tokens);
}

static PyMethodDef running_count_methods[] = {
    {"add", (PyCFunction)running_count_add, METH_O, "Adds a piece and returns by how much the count grew."},
    {"copy", (PyCFunction)running_count_copy, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef running_count_properties[] = {
    {"tokens", (getter)running_count_tokens, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef running_count_members[] = {
    {"word", T_OBJECT, offsetof(RunningCount, word), READONLY, "The last word, which is counted again."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject running_count_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "services.router.native.RunningCount",
    .tp_basicsize = sizeof(RunningCount),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = running_count_new,
    .tp_dealloc = (destructor)running_count_dealloc,
    .tp_methods = running_count_methods,
    .tp_members = running_count_members,
    .tp_getset = running_count_properties,
};

static void
put_number(unsigned char *at, unsigned long long number)
{
    for (int place = 0; place < 8; place++)
        at[place] = (unsigned char)(number >> 8 * place);
}

/* Scans a read, and counts and packs its texts, if all of them are within `sure_tokens` whatever their number. */
static PyObject *
pack_read(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    char *begin;
    Py_ssize_t size, body_bytes;
    Scan scan;
    if (count != 6 || !Py_IS_TYPE(arguments[1], &running_count_type)) {
        PyErr_SetString(PyExc_TypeError, "A read, its count, and four numbers of tokens are expected.");
        return NULL;
    }
    if (PyBytes_AsStringAndSize(arguments[0], &begin, &size) < 0)
        return NULL;
    Py_ssize_t tokens = PyLong_AsSsize_t(arguments[2]), sure_tokens = PyLong_AsSsize_t(arguments[3]);
    unsigned long long prompt_tokens = PyLong_AsUnsignedLongLong(arguments[4]);
    Py_ssize_t max_tokens = PyLong_AsSsize_t(arguments[5]);
    if (PyErr_Occurred())
        return NULL;
    body_bytes = scan_read(&scan, (const unsigned char *)begin, size);
    /* Each token is at least one byte. */
    Py_ssize_t text_bytes = scan.text_end - text_buffer;
    if (!body_bytes || text_bytes > MOST_TEXT_BYTES || tokens + text_bytes > sure_tokens)
        Py_RETURN_NONE;
    PyObject *text = decode_text(&scan);
    if (text == NULL) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    Py_ssize_t grown_tokens = add_piece((RunningCount *)arguments[1], text);
    Py_DECREF(text);
    if (grown_tokens < 0 && PyErr_Occurred())
        return NULL;
    tokens += grown_tokens;
    json_buffer[0] = 0;
    put_number(json_buffer + 1, prompt_tokens);
    put_number(json_buffer + 9, (unsigned long long)(tokens < max_tokens ? tokens : max_tokens));
    return Py_BuildValue("(y#nn)", (char *)json_buffer, scan.json_end - json_buffer, tokens, body_bytes);
}

/* Follows an HTTP parser through the chunks of a body: its methods are the parser's callbacks. */

typedef struct {
    PyObject_HEAD
    char is_between;
} ChunkPosition;

static PyObject *
chunk_begins(ChunkPosition *self, PyObject *Py_UNUSED(nothing))
{
    self->is_between = 0;
    Py_RETURN_NONE;
}

static PyObject *
chunk_ends(ChunkPosition *self, PyObject *Py_UNUSED(nothing))
{
    self->is_between = 1;
    Py_RETURN_NONE;
}

static PyMethodDef chunk_position_methods[] = {
    {"begin", (PyCFunction)chunk_begins, METH_NOARGS, NULL},
    {"end", (PyCFunction)chunk_ends, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef chunk_position_members[] = {
    {"is_between", T_BOOL, offsetof(ChunkPosition, is_between), 0, "Whether the last chunk has ended, and none has begun."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject chunk_position_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "services.router.native.ChunkPosition",
    .tp_basicsize = sizeof(ChunkPosition),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_methods = chunk_position_methods,
    .tp_members = chunk_position_members,
};

static PyMethodDef functions[] = {
    {"read_texts", read_texts, METH_VARARGS,
     "Returns the texts of events from a place on, up to the first that has anything else."},
    {"pack_read", (PyCFunction)(void (*)(void))pack_read, METH_FASTCALL,
     "Returns the packed piece of a read, the tokens with it, and the bytes of its body; None to decline."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "native",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit_native(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || PyModule_AddType(module, &running_count_type) < 0 ||
        PyModule_AddType(module, &chunk_position_type) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
