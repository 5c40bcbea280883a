/* What the router does for every chunk of an answer, compiled: with cold caches, Python needs several times as long for it.
 *
 * Everything here is in Python, too, and is the same there: see docs/decisions/0060-compiled-chunks.md. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <structmember.h>

#include "running_count.h"
#include "text_scan.h"
#include "word_counts.h"

/* Counting more would block the event loop for too long. */
#define MOST_TEXT_BYTES 16384

/* Returns the texts of the events that a body begins with, as long as each of them has nothing but a text, and where they
 * end. */
static PyObject *
read_leading_texts(PyObject *Py_UNUSED(module), PyObject *body)
{
    char *begin;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(body, &begin, &size) < 0)
        return NULL;
    PyObject *texts = PyList_New(0);
    if (texts == NULL)
        return NULL;
    Scan scan;
    EventShape shape = {0};
    begin_scan(&scan, (const unsigned char *)begin, size < MOST_BYTES ? size : MOST_BYTES);
    const unsigned char *read_to = scan.at;
    while (scan.at < scan.end && scan_event(&scan, &shape)) {
        if (scan.text_end > text_buffer) {
            PyObject *text = decode_text(&scan);
            if (text == NULL && !PyErr_Occurred())
                break;
            int appended = text == NULL ? -1 : PyList_Append(texts, text);
            Py_XDECREF(text);
            if (appended < 0) {
                Py_DECREF(texts);
                return NULL;
            }
        }
        read_to = scan.at;
        /* The texts of before are not needed any more. */
        scan.text_end = text_buffer;
        scan.json_end = json_buffer;
        scan.texts = 0;
    }
    return Py_BuildValue("(Nn)", texts, (Py_ssize_t)(read_to - (const unsigned char *)begin));
}

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
    /* Before the tokenizer is called, which may let others use the buffers. */
    PyObject *packed = PyBytes_FromStringAndSize((char *)json_buffer, scan.json_end - json_buffer);
    Py_ssize_t grown_tokens = packed == NULL ? 0 : add_piece((RunningCount *)arguments[1], text);
    Py_DECREF(text);
    if (packed == NULL || (grown_tokens < 0 && PyErr_Occurred())) {
        Py_XDECREF(packed);
        return NULL;
    }
    tokens += grown_tokens;
    unsigned char *head = (unsigned char *)PyBytes_AS_STRING(packed);
    head[0] = 0;
    put_number(head + 1, prompt_tokens);
    put_number(head + 9, (unsigned long long)(tokens < max_tokens ? tokens : max_tokens));
    return Py_BuildValue("(Nnn)", packed, tokens, body_bytes);
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
    {"read_leading_texts", read_leading_texts, METH_O,
     "Returns the texts of the events that a body begins with, up to the first that has anything else, and where they end."},
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
        PyModule_AddType(module, &chunk_position_type) < 0 || PyModule_AddType(module, &word_counts_type) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
