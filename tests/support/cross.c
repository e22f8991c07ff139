/* Runs compiled programs for an emulated processor: tables of slots come from a file, and go to another one.

   Input:  count, then for each run: program, bytes of the arena, slots, for each slot its bytes, whether it must be
           aligned to a cache line, and its contents. All numbers are int64.
   Output: for each run its status and the contents of its slots. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int32_t entry(void **slots, void *arena, void *pool);
extern entry *const programs[];

#define LINE 64

static FILE *in, *out;

static void end(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(2);
}

static int64_t number(void) {
    int64_t value;
    if (fread(&value, sizeof value, 1, in) != 1) end("the file of the runs is too short");
    return value;
}

/* So many bytes, of which the last, or the last of the line, is the last before a page that nobody may touch. */
static char *guarded(size_t bytes, int aligned) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), needed = aligned ? (bytes + LINE - 1) / LINE * LINE : bytes;
    size_t whole = (needed + page - 1) / page * page;
    char *at = mmap(NULL, whole + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || (whole && mprotect(at + page, whole, PROT_READ | PROT_WRITE))) end("no memory");
    return at + page + whole - needed;
}

static void forget(char *at, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *begin = (char *)((uintptr_t)at / page * page);
    if (bytes) munmap(begin, (size_t)(at - begin) + bytes);
}

int main(int count, char **names) {
    if (count != 3 || !(in = fopen(names[1], "rb")) || !(out = fopen(names[2], "wb"))) end("cross RUNS RESULTS");
    for (int64_t runs = number(); runs > 0; runs--) {
        int64_t program = number(), arena_bytes = number(), slots = number();
        void **table = calloc((size_t)slots + 1, sizeof *table);
        size_t *bytes = calloc((size_t)slots + 1, sizeof *bytes);
        if (!table || !bytes) end("no memory");
        for (int64_t i = 0; i < slots; i++) {
            bytes[i] = (size_t)number();
            table[i] = guarded(bytes[i], (int)number());
            if (fread(table[i], 1, bytes[i], in) != bytes[i]) end("the file of the runs is too short");
        }
        char *arena = guarded((size_t)arena_bytes, 1);
        int64_t status = programs[program](table, arena, NULL);
        fwrite(&status, sizeof status, 1, out);
        for (int64_t i = 0; i < slots; i++) {
            fwrite(table[i], 1, bytes[i], out);
            forget(table[i], bytes[i]);
        }
        forget(arena, (size_t)arena_bytes);
        free(table);
        free(bytes);
    }
    return fclose(out) ? 1 : 0;
}
