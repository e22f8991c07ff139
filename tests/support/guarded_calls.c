/* Stands between a program and the exported functions that it calls (linked with --wrap): a call is given copies, each
   between two pages that nobody may touch. In turn they end where a page ends and begin where one begins. Feeds cannot
   be written; workspace and results hold no zeros at first. "entries.h" says what is exported, an ENTRY each. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "net.h"

enum { MOST = 8 };
#define COUNT(sizes) (sizeof(sizes) / sizeof *(sizes))

static int calls;

static void *guarded(size_t bytes, const void *content) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    char *at = mmap(NULL, whole + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at + page, whole, PROT_READ | PROT_WRITE)) exit(3);
    at += calls % 2 ? page : page + whole - bytes;
    if (content) memcpy(at, content, bytes);
    else memset(at, 0xFF, bytes);
    return at;
}

static char *page_of(void *at) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (char *)at - (size_t)at % page;
}

static void release(void *at, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    munmap(page_of(at) - page, (bytes + page - 1) / page * page + 2 * page);
}

typedef int Entry(const void *const *, void *const *, void *, void *);

static int call(Entry *entry, const size_t *in_bytes, size_t ins, const size_t *out_bytes, size_t outs,
                size_t workspace_bytes, const void *const *in, void *const *out, void *state) {
    void *feeds[MOST], *results[MOST];
    calls++;
    for (size_t i = 0; i < ins; i++) {
        feeds[i] = guarded(in_bytes[i], in[i]);
        mprotect(page_of(feeds[i]), in_bytes[i], PROT_READ);
    }
    for (size_t i = 0; i < outs; i++) results[i] = guarded(out_bytes[i], NULL);
    void *own_in = guarded(ins * sizeof *feeds, feeds), *own_out = guarded(outs * sizeof *results, results);
    void *workspace = guarded(workspace_bytes, NULL), *own_state = guarded(NET_STATE_BYTES, state);
    int status = entry((const void *const *)own_in, (void *const *)own_out, workspace, own_state);
    memcpy(state, own_state, NET_STATE_BYTES);
    for (size_t i = 0; i < outs; i++) memcpy(out[i], results[i], out_bytes[i]);
    for (size_t i = 0; i < ins; i++) release(feeds[i], in_bytes[i]);
    for (size_t i = 0; i < outs; i++) release(results[i], out_bytes[i]);
    release(own_in, ins * sizeof *feeds);
    release(own_out, outs * sizeof *results);
    release(workspace, workspace_bytes);
    release(own_state, NET_STATE_BYTES);
    return status;
}

#define SIZES(...) {__VA_ARGS__}
#define ENTRY(name, in_sizes, out_sizes, workspace_bytes)                                                    \
    Entry __real_##name, __wrap_##name;                                                                      \
    int __wrap_##name(const void *const *in, void *const *out, void *workspace, void *state) {               \
        static const size_t in_bytes[] = in_sizes, out_bytes[] = out_sizes;                                  \
        (void)workspace;                                                                                     \
        return call(__real_##name, in_bytes, COUNT(in_bytes), out_bytes, COUNT(out_bytes), workspace_bytes,  \
                    in, out, state);                                                                         \
    }

#include "entries.h"
