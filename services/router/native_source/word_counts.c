/* Counts the tokens of a text word by word, and remembers the count of each word: see
 * docs/decisions/0137-texts-and-words-are-counted-once.md.
 *
 * The tokenizer splits a text into words by a pattern, and encodes each word by itself, so the count of a text is the sum
 * of those of its words. Texts repeat their words, and to look one up takes a twentieth of the time of encoding it.
 * A word is remembered as the digest of its bytes, keyed by a secret of the process, and its count: never itself.
 *
 * The pattern is followed for ASCII alone. From a word that touches another character up to a place where the tokenizer
 * splits for certain, all is one stretch for the tokenizer. */
#include "word_counts.h"

#include <stdint.h>
#include <string.h>

/* Longer ones hardly repeat. */
#define LONGEST_REMEMBERED_BYTES 96
#define KEY_BYTES 16
/* A megabyte: some hundred thousand words. */
#define PLACES (1 << 17)

typedef struct {
    PyObject_HEAD
    /* Counts a text. */
    PyObject *count;
    uint64_t key[2];
    /* Digests of words, with the counts in their last eight bits; 0: free. */
    uint64_t *known;
} WordCounts;

#define IS_SPACE 1
#define IS_UPPER 2
#define IS_LOWER 4
#define IS_DIGIT 8
#define IS_BREAK 16
#define IS_SIGN 32
#define IS_FOREIGN 64
#define IS_LETTER (IS_UPPER | IS_LOWER)

static unsigned char kinds[256];

static void
fill_kinds(void)
{
    for (int byte = 0; byte < 256; byte++)
        kinds[byte] = byte >= 0x80                   ? IS_FOREIGN
                      : byte >= 'A' && byte <= 'Z'   ? IS_UPPER
                      : byte >= 'a' && byte <= 'z'   ? IS_LOWER
                      : byte >= '0' && byte <= '9'   ? IS_DIGIT
                      : byte == '\r' || byte == '\n' ? IS_SPACE | IS_BREAK
                      : byte == ' ' || (byte >= '\t' && byte <= '\f') ? IS_SPACE
                                                                      : IS_SIGN;
}

static uint64_t
rotate(uint64_t word, int bits)
{
    return word << bits | word >> (64 - bits);
}

static void
mix(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

/* Returns the keyed digest of a word: SipHash-1-3. */
static uint64_t
digest_word(const uint64_t key[2], const unsigned char *at, Py_ssize_t size)
{
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du, key[0] ^ 0x6c7967656e657261u,
                     key[1] ^ 0x7465646279746573u};
    uint64_t last = (uint64_t)size << 56, word;
    for (; size >= 8; at += 8, size -= 8) {
        memcpy(&word, at, 8);
        v[3] ^= word;
        mix(v);
        v[0] ^= word;
    }
    word = 0;
    memcpy(&word, at, size);
    last |= word;
    v[3] ^= last;
    mix(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    mix(v);
    mix(v);
    mix(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Returns where the word ends that begins here; NULL if that depends on other than ASCII characters. */
static const unsigned char *
find_end(const unsigned char *at, const unsigned char *end)
{
    const unsigned char *begin = at;
    int kind = kinds[*at];
    if (kind & IS_FOREIGN)
        return NULL;
    if (kind & IS_DIGIT) {
        while (at < end && at < begin + 3 && kinds[*at] & IS_DIGIT)
            at++;
        return at < begin + 3 && at < end && kinds[*at] & IS_FOREIGN ? NULL : at;
    }
    if (!(kind & (IS_LETTER | IS_BREAK)) && at + 1 < end) {
        /* A space or a sign belongs to the letters that follow it. */
        if (kinds[at[1]] & IS_FOREIGN)
            return NULL;
        at += (kinds[at[1]] & IS_LETTER) != 0;
    }
    if (kinds[*at] & IS_LETTER) {
        while (at < end && kinds[*at] & IS_UPPER)
            at++;
        while (at < end && kinds[*at] & IS_LOWER)
            at++;
        if (at < end && kinds[*at] & IS_FOREIGN)
            return NULL;
        if (at + 1 < end && *at == '\'') {
            /* A contraction, in either case. */
            int first = at[1] | 0x20, second = at + 2 < end ? at[2] | 0x20 : 0;
            if (kinds[at[1]] & IS_FOREIGN)
                return NULL;
            if (kinds[at[1]] & IS_LETTER) {
                if (first == 's' || first == 't' || first == 'm' || first == 'd')
                    at += 2;
                else if (at + 2 < end && kinds[at[2]] & IS_LETTER &&
                         ((second == 'e' && (first == 'r' || first == 'v')) || (first == 'l' && second == 'l')))
                    at += 3;
            }
        }
        return at;
    }
    /* Signs, after a space or not, with the breaks and slashes that follow. */
    const unsigned char *sign = *at == ' ' && at + 1 < end ? at + 1 : at;
    if (kinds[*sign] & IS_SIGN) {
        at = sign;
        while (at < end && kinds[*at] & IS_SIGN)
            at++;
        if (at < end && kinds[*at] & IS_FOREIGN)
            return NULL;
        while (at < end && (kinds[*at] & IS_BREAK || *at == '/'))
            at++;
        return at;
    }
    /* Spaces: up to the last break among them, or else all but one, which belongs to what follows. */
    const unsigned char *after_break = NULL;
    while (at < end && kinds[*at] & IS_SPACE)
        if (kinds[*at++] & IS_BREAK)
            after_break = at;
    if (at < end && kinds[*at] & IS_FOREIGN)
        return NULL;
    if (after_break != NULL)
        return after_break;
    return at == end || at == begin + 1 ? at : at - 1;
}

/* Returns whether the character that begins with this byte is certainly no space. */
static int
is_no_space(unsigned char byte)
{
    return byte < 0x80 ? !(kinds[byte] & IS_SPACE) : byte >= 0xc3 && (byte < 0xe1 || byte > 0xe3);
}

/* Returns where the tokenizer splits for certain next: before a single space, or between a break and a sign or letter. */
static const unsigned char *
find_split(const unsigned char *at, const unsigned char *end)
{
    const unsigned char *begin = at;
    for (at++; at + 1 < end; at++) {
        if (*at == '\n' && at[1] < 0x80 && at[1] != '/' && !(kinds[at[1]] & IS_SPACE))
            return at + 1;
        if (*at != ' ' || !is_no_space(at[1]))
            continue;
        const unsigned char *before = at - 1;
        while (before > begin && (*before & 0xc0) == 0x80)
            before--;
        if (is_no_space(*before))
            return at;
    }
    return end;
}

static Py_ssize_t
count_new(WordCounts *self, const unsigned char *at, Py_ssize_t size)
{
    PyObject *text = PyUnicode_DecodeUTF8((const char *)at, size, NULL);
    if (text == NULL)
        return -1;
    PyObject *counted = PyObject_CallOneArg(self->count, text);
    Py_DECREF(text);
    if (counted == NULL)
        return -1;
    Py_ssize_t tokens = PyLong_AsSsize_t(counted);
    Py_DECREF(counted);
    return tokens;
}

static Py_ssize_t
count_word(WordCounts *self, const unsigned char *at, Py_ssize_t size)
{
    if (size > LONGEST_REMEMBERED_BYTES)
        return count_new(self, at, size);
    uint64_t digest = digest_word(self->key, at, size), name = digest & ~(uint64_t)0xff;
    uint64_t *known = self->known + (digest >> 8) % PLACES, *other = self->known + ((digest >> 8) % PLACES ^ 1);
    if (*known && (*known & ~(uint64_t)0xff) == name)
        return *known & 0xff;
    if (*other && (*other & ~(uint64_t)0xff) == name)
        return *other & 0xff;
    Py_ssize_t tokens = count_new(self, at, size);
    if (tokens > 0 && tokens < 0x100) {
        /* The newer of two stays longer. */
        if (*known && *other)
            *other = *known;
        *(*known && !*other ? other : known) = name | (uint64_t)tokens;
    }
    return tokens;
}

static PyObject *
word_counts_count(WordCounts *self, PyObject *text)
{
    Py_ssize_t size, found_tokens = 0;
    const unsigned char *at = (const unsigned char *)PyUnicode_AsUTF8AndSize(text, &size);
    if (at == NULL)
        return NULL;
    const unsigned char *end = at + size;
    while (at < end) {
        const unsigned char *word_end = find_end(at, end);
        if (word_end == NULL)
            word_end = find_split(at, end);
        Py_ssize_t tokens = count_word(self, at, word_end - at);
        if (tokens < 0)
            return NULL;
        found_tokens += tokens;
        at = word_end;
    }
    return PyLong_FromSsize_t(found_tokens);
}

static PyObject *
word_counts_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named))
{
    PyObject *count;
    const char *key;
    Py_ssize_t key_bytes;
    if (!PyArg_ParseTuple(args, "Oy#", &count, &key, &key_bytes))
        return NULL;
    if (key_bytes != KEY_BYTES) {
        PyErr_SetString(PyExc_ValueError, "A key of 16 bytes is expected.");
        return NULL;
    }
    WordCounts *self = (WordCounts *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    fill_kinds();
    memcpy(self->key, key, KEY_BYTES);
    self->count = Py_NewRef(count);
    self->known = PyMem_RawCalloc(PLACES, sizeof(uint64_t));
    if (self->known == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void
word_counts_dealloc(WordCounts *self)
{
    PyMem_RawFree(self->known);
    Py_XDECREF(self->count);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef word_counts_methods[] = {
    {"count", (PyCFunction)word_counts_count, METH_O, "Returns the tokens of a text."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject word_counts_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "services.router.native.WordCounts",
    .tp_basicsize = sizeof(WordCounts),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = word_counts_new,
    .tp_dealloc = (destructor)word_counts_dealloc,
    .tp_methods = word_counts_methods,
};
