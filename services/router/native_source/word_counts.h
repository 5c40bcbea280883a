/* The counts of words that were counted before: see word_counts.c. */
#ifndef LEGATO_WORD_COUNTS_H
#define LEGATO_WORD_COUNTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyTypeObject word_counts_type;

#endif
