/* Linked into a program, these end it where it asks for memory of the heap or gives some back. */
#include <stddef.h>
#include <stdlib.h>

void *malloc(size_t bytes) {
    (void)bytes;
    abort();
}

void *calloc(size_t count, size_t bytes) {
    (void)count, (void)bytes;
    abort();
}

void *realloc(void *at, size_t bytes) {
    (void)at, (void)bytes;
    abort();
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    (void)alignment, (void)bytes;
    abort();
}

int posix_memalign(void **at, size_t alignment, size_t bytes) {
    (void)at, (void)alignment, (void)bytes;
    abort();
}

void free(void *at) {
    if (at) abort();
}
