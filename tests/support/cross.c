/* Runs compiled programs for an emulated processor: tables of slots come from a file, and go to another one.

   Input:  count, then for each run: program, bytes of the arena, slots, for each slot its bytes, whether it must be
           aligned to a cache line, and its contents. All numbers are int64.
   Output: for each run its status and the contents of its slots. */
#include "cross.h"

typedef int32_t entry(void **slots, void *arena, void *pool);
extern entry *const programs[];

static int64_t number(void) {
    int64_t value;
    take(&value, sizeof value);
    return value;
}

void run_all(void) {
    for (int64_t runs = number(); runs > 0; runs--) {
        int64_t program = number(), arena_bytes = number(), slots = number();
        char **table = (char **)guarded((size_t)slots * sizeof *table, 1);
        size_t *bytes = (size_t *)guarded((size_t)slots * sizeof *bytes, 1);
        for (int64_t i = 0; i < slots; i++) {
            bytes[i] = (size_t)number();
            table[i] = guarded(bytes[i], (int)number());
            take(table[i], bytes[i]);
        }
        char *arena = guarded((size_t)arena_bytes, 1);
        int64_t status = programs[program]((void **)table, arena, NULL);
        give(&status, sizeof status);
        for (int64_t i = 0; i < slots; i++) give(table[i], bytes[i]);
        forget_all();
    }
}
