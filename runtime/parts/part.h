/* What the parts in C know of each other and of Python.

   A part knows the constants and the records (classes of words) of its Python module, which tests/make_parts.py writes
   into a header before it is compiled: IDLE of a RecyclerWord is pool->IDLE. What only the process that loads the part
   knows, as systems and builds of Python differ in it, is FILLED in there. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int64_t word;

/* FILLED(NAME); declares a number: the address of a symbol, which is $NAME in the text that is made. NUMBER(NAME) is
   its value; it may be an argument or an offset, as nothing is computed from it before it is known. */
#define FILLED(name) extern const char name[]
#define NUMBER(name) ((word)name)

/* A function for parts that are linked with this one. */
#define HIDDEN __attribute__((visibility("hidden")))
