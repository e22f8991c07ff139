/* The machine code of locks.py, which says what it does. FREE_THREADED: there is no GIL. */
#include "part.h"

FILLED(WAIT_CLOCK); /* by which conditions wait */
FILLED(SLICE);

word pthread_self(void);
int pthread_mutex_init(word *mutex, const void *attributes);
int pthread_mutex_lock(word *mutex);
int pthread_mutex_unlock(word *mutex);
int pthread_condattr_init(word *attributes);
int pthread_cond_init(word *condition, const word *attributes);
int pthread_cond_timedwait(word *condition, word *mutex, const word *until);
int pthread_cond_broadcast(word *condition);
int clock_gettime(int clock, word *seconds_and_nanoseconds);
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *thread);
int PyErr_CheckSignals(void);
void *PyObject_Vectorcall(void *callable, void *const *arguments, word count, void *names);
void *PyCapsule_GetPointer(void *capsule, const char *name);
void *PyLong_FromUnsignedLongLong(uint64_t);
void Py_DecRef(void *);
void *memmove(void *to, const void *from, size_t nbytes);

typedef struct LockWord Lock;

/* Between begin and end no other thread reads or writes the words of a lock. With a GIL, which is held there, they do
   nothing, and only waking takes the mutex: a waiting thread has given the GIL away, and holds the mutex between its
   look at SERIAL and its sleep. */
#ifdef FREE_THREADED
static void begin(Lock *lock) { pthread_mutex_lock(&lock->MUTEX); }
static void end(Lock *lock) { pthread_mutex_unlock(&lock->MUTEX); }
static void begin_waking(Lock *lock) { (void)lock; }
static void end_waking(Lock *lock) { (void)lock; }
#else
static void begin(Lock *lock) { (void)lock; }
static void end(Lock *lock) { (void)lock; }
static void begin_waking(Lock *lock) { pthread_mutex_lock(&lock->MUTEX); }
static void end_waking(Lock *lock) { pthread_mutex_unlock(&lock->MUTEX); }
#endif

/* The first place of a thread in a row, from 1; 0 where it has none. */
static word find(const word *row, word thread) {
    for (word i = 1; i <= row[0]; i++)
        if (row[i] == thread)
            return i;
    return 0;
}

/* How many places of a row a thread has. */
static word times(const word *row, word thread) {
    word sum = 0;
    for (word i = 1; i <= row[0]; i++)
        sum += row[i] == thread;
    return sum;
}

/* Whether another thread stands in front of this one, or anywhere in the row where this one has no place. Who runs its
   signal handlers does not count. */
static bool is_behind(const word *row, word thread) {
    for (word i = 1; i <= row[0] && row[i] != thread; i++)
        if (row[i] >= 0)
            return true;
    return false;
}

/* Give a thread the last place of a row, unless the row is full. */
static void append(word *row, word thread) {
    if (row[0] < ROW)
        row[++row[0]] = thread;
}

/* Take away the first place of a thread, if it has one. */
static void take_away(word *row, word thread) {
    word at = find(row, thread);
    if (at)
        memmove(&row[at], &row[at + 1], (size_t)(row[0]-- - at) * sizeof(word));
}

/* Write another number into the first place of a thread, if it has one. */
static void renumber(word *row, word thread, word number) {
    word at = find(row, thread);
    if (at)
        row[at] = number;
}

/* Without a holder but this thread, if it is one. Called when the lock is made, and in a forked child. set_clock is
   pthread_condattr_setclock, or null where conditions wait by the time of day. */
void reset(Lock *lock, int (*set_clock)(word *attributes, int clock)) {
    word attributes[16];
    pthread_mutex_init(&lock->MUTEX, NULL);
    pthread_condattr_init(attributes);
    if (set_clock != NULL)
        set_clock(attributes, (int)NUMBER(WAIT_CLOCK));
    pthread_cond_init(&lock->WAKE, attributes);
    word me = pthread_self(), reads = times(&lock->READERS, me);
    if (lock->OWNER != me)
        lock->OWNER = lock->DEPTH = lock->WRITING = 0;
    lock->GATE = lock->DEPTH + reads;
    lock->READERS = lock->WAITERS = 0;
    for (word i = 0; i < reads; i++)
        append(&lock->READERS, me);
}

/* Whoever waits looks again. */
static void wake(Lock *lock) {
    if (lock->WAITERS <= 0)
        return;
    begin_waking(lock);
    lock->SERIAL++;
    pthread_cond_broadcast(&lock->WAKE);
    end_waking(lock);
}

/* Sleep without the GIL until another thread wakes this one (0), or for a slice (1); then run signal handlers: -1 if
   one has raised. */
static int wait(Lock *lock, word me) {
    word until[2], before = lock->SERIAL;
    end(lock);
    void *thread = PyEval_SaveThread();
    clock_gettime((int)NUMBER(WAIT_CLOCK), until);
    uint64_t later = (uint64_t)(until[1] + NUMBER(SLICE));
    until[0] += (word)(later / 1000000000);
    until[1] = (word)(later % 1000000000);
    pthread_mutex_lock(&lock->MUTEX);
    int slept = 0;
    /* Volatile: it is read again after each sleep, whatever is known of pthread_cond_timedwait. */
    while (!slept && *(volatile word *)&lock->SERIAL == before)
        slept = pthread_cond_timedwait(&lock->WAKE, &lock->MUTEX, until) != 0;
    pthread_mutex_unlock(&lock->MUTEX);
    PyEval_RestoreThread(thread);
    begin(lock);
    renumber(&lock->WAITERS, me, -me);
    end(lock);
    int raised = PyErr_CheckSignals();
    begin(lock);
    renumber(&lock->WAITERS, -me, me);
    return raised ? -1 : slept;
}

/* Tell a Python function who holds the lock, and for how many slices this thread has waited; false if it raises. */
static bool report(Lock *lock, word slices) {
    void *waited = PyLong_FromUnsignedLongLong((uint64_t)slices);
    void *owner = PyLong_FromUnsignedLongLong((uint64_t)lock->OWNER);
    void *arguments[2] = {owner, waited}, *function = (void *)lock->REPORT;
    end(lock);
    void *answer = PyObject_Vectorcall(function, arguments, 2, NULL);
    begin(lock);
    Py_DecRef(owner);
    Py_DecRef(waited);
    if (answer != NULL)
        Py_DecRef(answer);
    return answer != NULL;
}

/* Leave the row of those who wait. A Python exception is set. */
static int give_up(Lock *lock, word me) {
    take_away(&lock->WAITERS, me);
    wake(lock);
    end(lock);
    return -1;
}

/* Take the lock: 0, or -1 with a Python exception set and the lock as it was. */
int acquire(Lock *lock, word kind) {
    word me = pthread_self(), slices = 0;
    bool is_shared = kind == SHARED, is_exclusive = kind == EXCLUSIVE;
    begin(lock);
    while (lock->OWNER | lock->READERS | lock->WAITERS) {
        bool owns = lock->OWNER == me;
        word reads = times(&lock->READERS, me);
        if (is_exclusive && reads && !owns) {
            void *refuse = (void *)lock->REFUSE;
            end(lock);
            PyObject_Vectorcall(refuse, NULL, 0, NULL);
            begin(lock);
            return give_up(lock, me);
        }
        bool is_taken = lock->OWNER && !owns;
        bool is_read = is_exclusive && lock->READERS != reads;
        bool is_full = is_shared && lock->READERS == ROW;
        bool follows = !owns && !reads && is_behind(&lock->WAITERS, me);
        if (!is_taken && !is_read && !is_full && !follows) {
            take_away(&lock->WAITERS, me);
            if (is_shared)
                wake(lock);
            break;
        }
        if (!find(&lock->WAITERS, me))
            append(&lock->WAITERS, me);
        int slept = wait(lock, me);
        if (slept < 0)
            return give_up(lock, me);
        slices += slept;
        if (slept && slices % LOOKED_AT == 0 && !report(lock, slices))
            return give_up(lock, me);
    }
    lock->GATE++;
    if (is_shared) {
        append(&lock->READERS, me);
    } else {
        lock->OWNER = me;
        lock->DEPTH++;
    }
    end(lock);
    return 0;
}

void release(Lock *lock, word kind) {
    word me = pthread_self();
    begin(lock);
    lock->GATE--;
    if (kind == SHARED) {
        take_away(&lock->READERS, me);
        wake(lock);
    } else if (--lock->DEPTH == 0) {
        lock->OWNER = 0;
        wake(lock);
    }
    end(lock);
}

/* A function with CPython's calling convention METH_FASTCALL: call arguments[0] with the others. The words of the
   capsule are the lock's address and a kind. */
void *hold(void *capsule, void *const *arguments, word count) {
    const word *words = PyCapsule_GetPointer(capsule, NULL);
    Lock *lock = (Lock *)words[0];
    word kind = words[1];
    if (acquire(lock, kind))
        return NULL;
    void *answer = PyObject_Vectorcall(arguments[0], arguments + 1, count - 1, NULL);
    release(lock, kind);
    return answer;
}
