/* The machine code of cfunction.py that gives each thread memory of its own. KEY: pthread_key_t. */
#include "../parts/part.h"

void *pthread_getspecific(KEY key);
int pthread_setspecific(KEY key, const void *);
int pthread_key_create(KEY *key, void (*destructor)(void *));
int posix_memalign(void **place, size_t alignment, size_t nbytes);
void free(void *);
void *PyCapsule_GetContext(void *capsule);
void Py_DecRef(void *);

static KEY key;

/* Once in a process. Non-zero: there is no key left. */
int start(void) { return pthread_key_create(&key, free); }

/* The calling thread's block, of that number of bytes at least, after a cache line that says how many; null where there
   is no memory. It is kept until the thread ends. */
void *block(word nbytes) {
    word *old = pthread_getspecific(key);
    if (old != NULL && nbytes <= *old)
        return (char *)old + LINE;
    void *place;
    if (posix_memalign(&place, LINE, (size_t)(nbytes + LINE)))
        return NULL;
    free(old);
    *(word *)place = nbytes;
    if (!pthread_setspecific(key, place))
        return (char *)place + LINE;
    pthread_setspecific(key, NULL);
    free(place);
    return NULL;
}

/* The destructor of a capsule that holds a reference. */
void forget(void *capsule) { Py_DecRef(PyCapsule_GetContext(capsule)); }
