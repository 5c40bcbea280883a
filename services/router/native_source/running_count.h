/* The running count of a streamed text's tokens: see running_count.c. */
#ifndef LEGATO_RUNNING_COUNT_H
#define LEGATO_RUNNING_COUNT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct {
    PyObject_HEAD
    PyObject *count;
    PyObject *word;
    Py_ssize_t word_tokens;
    Py_ssize_t settled_tokens;
} RunningCount;

extern PyTypeObject running_count_type;

/* Adds a piece, and returns by how much the count grew; with an exception if it could not be counted. */
Py_ssize_t add_piece(RunningCount *self, PyObject *piece);

#endif
