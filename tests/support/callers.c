/* Calls C functions from many threads, with buffers that end where a page begins that nobody may touch. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int slots_f(const void *const *, void *const *, void *);
typedef int logp_f(size_t, const double *, double *, double *, void *);

#define MOST 16

typedef struct {
    slots_f *function;
    int feeds, results, calls, status;
    const size_t *bytes;
    const void *const *in;
    const void *const *expected;
    long wrong;
} work;

/* So many bytes, the last of which is the last of a page before one without access. */
static char *guarded(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page + (bytes ? 0 : page);
    char *at = mmap(NULL, whole + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at + page, whole, PROT_READ | PROT_WRITE)) return NULL;
    return at + page + whole - bytes;
}

static void *run(void *given) {
    work *w = given;
    const void *in[MOST];
    void *out[MOST];
    for (int i = 0; i < w->feeds; i++) {
        char *copy = guarded(w->bytes[i]);
        memcpy(copy, w->in[i], w->bytes[i]);
        in[i] = copy;
    }
    for (int i = 0; i < w->results; i++) out[i] = guarded(w->bytes[w->feeds + i]);
    for (int n = 0; n < w->calls; n++) {
        for (int i = 0; i < w->results; i++) memset(out[i], 0xA5, w->bytes[w->feeds + i]);
        w->status |= w->function(in, out, NULL);
        for (int i = 0; i < w->results; i++)
            w->wrong += memcmp(out[i], w->expected[i], w->bytes[w->feeds + i]) != 0;
    }
    return NULL;
}

/* The number of results that differ from what is expected, of so many threads; -1 if a call has failed. */
long call_slots(slots_f *function, int feeds, int results, const size_t *bytes, const void *const *in,
                const void *const *expected, int threads, int calls) {
    pthread_t started[MOST];
    work all[MOST];
    long wrong = 0;
    for (int i = 0; i < threads; i++) {
        all[i] = (work){function, feeds, results, calls, 0, bytes, in, expected, 0};
        if (pthread_create(&started[i], NULL, run, &all[i])) return -2;
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(started[i], NULL);
        if (all[i].status) return -1;
        wrong += all[i].wrong;
    }
    return wrong;
}

/* Gradient descent on a function to be maximized. */
int climb(logp_f *function, size_t n, double *x, double rate, int steps, void *user) {
    double grad[MOST], value;
    for (int s = 0; s < steps; s++) {
        int status = function(n, x, grad, &value, user);
        if (status) return status;
        for (size_t i = 0; i < n; i++) x[i] += rate * grad[i];
    }
    return 0;
}

double maximize(double (*function)(unsigned, const double *, double *, void *), unsigned n, double *x, double rate,
                int steps, void *user) {
    double grad[MOST];
    for (int s = 0; s < steps; s++) {
        function(n, x, grad, user);
        for (unsigned i = 0; i < n; i++) x[i] += rate * grad[i];
    }
    return function(n, x, NULL, user);
}

/* Euler's method. */
void integrate(void (*function)(double, const double *, double *, const double *), size_t n, double *u, const double *p,
               double dt, int steps) {
    double du[MOST];
    for (int s = 0; s < steps; s++) {
        function(s * dt, u, du, p);
        for (size_t i = 0; i < n; i++) u[i] += dt * du[i];
    }
}
