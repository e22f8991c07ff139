/* The machine code of interrupts.py, which says what it does. */
#include "clock.h"

word pthread_self(void);
int PyGILState_Ensure(void);
void PyGILState_Release(int);
int PyErr_CheckSignals(void);
void PyErr_Fetch(void **type, void **value, void **trace);
void PyErr_Restore(void *type, void *value, void *trace);
void PyErr_NormalizeException(void **type, void **value, void **trace);
void PyErr_Clear(void);
int PyException_SetTraceback(void *value, void *trace);
void *PyObject_CallOneArg(void *callable, void *argument);
void *PyLong_FromVoidPtr(void *);
word PyLong_AsLong(void *);
void Py_DecRef(void *);

typedef struct ContextLayout Context;
typedef void Part(void *table, word chunk, word worker);

/* STOPPED is written by the thread that called the program and read by all that share its chunks. It is read relaxed,
   as it hands nothing else over: a worker that sees it late takes a chunk more. */
static bool is_stopped(const Context *context) { return __atomic_load_n(&context->STOPPED, __ATOMIC_RELAXED) != 0; }

static void set_stopped(Context *context, word value) { __atomic_store_n(&context->STOPPED, value, __ATOMIC_SEQ_CST); }

static bool asks(const Context *context) { return context->WATCHES && !context->COMMITTED; }

/* Before a program is called with this context. */
void begin(Context *context) {
    context->WATCHES = *(const word *)context->MAIN == pthread_self();
    context->LAST = now();
    context->COMMITTED = 0;
    set_stopped(context, 0);
}

/* Called by the thread that called the program: not null when it shall end. */
int poll(Context *context) {
    if (is_stopped(context))
        return 1;
    if (!asks(context) || now() - context->LAST < INTERVAL)
        return 0;
    int gil = PyGILState_Ensure(), raised = PyErr_CheckSignals();
    if (raised) {
        PyErr_Fetch((void **)&context->TYPE, (void **)&context->VALUE, (void **)&context->TRACE);
        set_stopped(context, 1);
    }
    context->LAST = now();
    PyGILState_Release(gil);
    return raised != 0;
}

/* Set the exception that ended a program. The GIL is held. */
void raise_it(Context *context) {
    word type = context->TYPE, value = context->VALUE, trace = context->TRACE;
    context->TYPE = context->VALUE = context->TRACE = 0;
    PyErr_Restore((void *)type, (void *)value, (void *)trace);
}

/* What was raised in a Python function of a program ends the program where it can be ended (0), or goes to another
   function, which is of C (the status of a failure). */
static word raised_in(const struct CallWord *words) {
    void *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != NULL)
        PyException_SetTraceback(value, trace);
    Context *context = (Context *)words->CONTEXT;
    if (context != NULL && !is_stopped(context) && !context->COMMITTED) {
        context->TYPE = (word)type;
        context->VALUE = (word)value;
        context->TRACE = (word)trace;
        set_stopped(context, 1);
        return 0;
    }
    void *told = PyObject_CallOneArg((void *)words->TELL, value);
    PyErr_Clear();
    Py_DecRef(told);
    Py_DecRef(type);
    Py_DecRef(value);
    Py_DecRef(trace);
    return words->FAILURE;
}

/* What a program calls: a Python function with the operands' address. What is raised in it, by a signal handler before
   its first bytecode too, is dealt with before the GIL is given away. */
int call_python(const struct CallWord *words, void *operands) {
    int gil = PyGILState_Ensure();
    void *address = PyLong_FromVoidPtr(operands);
    void *answer = PyObject_CallOneArg((void *)words->FUNCTION, address);
    Py_DecRef(address);
    word status;
    if (answer != NULL) {
        status = PyLong_AsLong(answer);
        Py_DecRef(answer);
    } else {
        status = raised_in(words);
    }
    PyGILState_Release(gil);
    return (int)status;
}

/* A part whose chunks end where the program shall end. */
typedef struct {
    Context *context;
    Part *part;
    void *table;
} Polled;

static void polled_part(void *table, word chunk, word worker) {
    const Polled *polled = table;
    bool is_over = worker == 0 ? poll(polled->context) != 0 : is_stopped(polled->context);
    if (!is_over)
        polled->part(polled->table, chunk, worker);
}

/* As a pool's own: with the pool of the context, or alone. Who has begun to write state does all chunks. */
void run(Context *context, Part *part, void *table, word chunks) {
    Polled polled = {context, part, table};
    if (asks(context)) {
        part = polled_part;
        table = &polled;
    }
    void *pool = (void *)context->POOL;
    if (pool != NULL) {
        void (*share)(void *pool, Part *part, void *table, word chunks) = *(void **)pool;
        share(pool, part, table, chunks);
        return;
    }
    for (word i = 0; i < chunks; i++)
        part(table, i, 0);
}
