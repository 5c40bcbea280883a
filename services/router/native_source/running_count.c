/* Counts the tokens of a streamed text: the same as PythonRunningCount in prompts/running_count.py, where it is
 * explained. */
#include "running_count.h"

#include <structmember.h>

#define SHORT_WORD_CHARACTERS 12
#define LONGEST_WORD_CHARACTERS 64

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

Py_ssize_t
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

PyTypeObject running_count_type = {
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
