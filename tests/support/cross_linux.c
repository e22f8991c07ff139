/* The driver of emulated runs on Linux: files are named on the command line, a page that nobody may touch is a guard. */
#define _GNU_SOURCE
#include "cross.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static FILE *in, *out;
static struct {
    char *at;
    size_t bytes;
} pieces[MOST];
static int count;

void end(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(2);
}

void take(void *to, size_t bytes) {
    if (fread(to, 1, bytes, in) != bytes) end("the file of the runs is too short");
}

void give(const void *from, size_t bytes) {
    if (fwrite(from, 1, bytes, out) != bytes) end("the results cannot be written");
}

char *guarded(size_t bytes, int aligned) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), needed = aligned ? (bytes + LINE - 1) / LINE * LINE : bytes;
    size_t whole = (needed + page - 1) / page * page;
    char *at = mmap(NULL, whole + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || (whole && mprotect(at + page, whole, PROT_READ | PROT_WRITE)) || count == MOST)
        end("no memory");
    pieces[count].at = at;
    pieces[count++].bytes = whole + 2 * page;
    return at + page + whole - needed;
}

void forget_all(void) {
    while (count--) munmap(pieces[count].at, pieces[count].bytes);
    count = 0;
}

int main(int words, char **names) {
    if (words != 3 || !(in = fopen(names[1], "rb")) || !(out = fopen(names[2], "wb"))) end("cross RUNS RESULTS");
    run_all();
    return fclose(out) ? 1 : 0;
}
