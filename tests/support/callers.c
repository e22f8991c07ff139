/* Calls C functions from many threads, with buffers between pages that nobody may touch. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int slots_f(const void *const *, void *const *, void *);
typedef int logp_f(size_t, const double *, double *, double *, void *);
typedef double nlopt_f(unsigned, const double *, double *, void *);
typedef int vector_f(size_t, size_t, const double *, double *, void *);
typedef void ode_f(double, const double *, double *, const double *);
typedef double scalar_f(double, void *);
typedef double scalars_f(int, double *, void *);

#define MOST 16

/* The order of the table of signatures in Python. */
enum signature { SLOTS, LOGP, NLOPT, ODE, VECTOR, SCALAR, SCALARS };

typedef struct {
    int signature;
    void (*function)(void);
    int number, feeds, results, calls, status;
    const size_t *bytes;
    const void *const *in;
    const void *const *expected;
    void *const *shared;
    long wrong;
} work;

#if defined(__SANITIZE_ADDRESS__)
/* So many bytes, between some that the sanitizer knows that nobody may touch. */
static char *guarded(size_t bytes, int at_end) {
    (void)at_end;
    return malloc(bytes);
}
#else
/* So many bytes between two pages without access: they end where the second begins, or begin where the first ends. */
static char *guarded(size_t bytes, int at_end) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page + (bytes ? 0 : page);
    char *at = mmap(NULL, whole + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at + page, whole, PROT_READ | PROT_WRITE)) return NULL;
    return at + page + (at_end ? whole - bytes : 0);
}
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#if defined(__SANITIZE_ADDRESS__)
void __asan_loadN(void *, size_t);
void __asan_storeN(void *, size_t);
#define TOLD_READ __asan_loadN
#define TOLD_WRITE __asan_storeN
#else
void __tsan_read_range(void *, size_t);
void __tsan_write_range(void *, size_t);
#define TOLD_READ __tsan_read_range
#define TOLD_WRITE __tsan_write_range
#endif

/* What compiled programs tell the sanitizer of vectors of which some lanes are read or written: in one place. */
void told_lanes(char *at, uint64_t bits, uint64_t bytes, int is_write) {
    for (; bits; bits >>= 1, at += bytes)
        if (bits & 1) (is_write ? TOLD_WRITE : TOLD_READ)(at, bytes);
}

/* In a place of its own each. */
void told_places(void **at, uint64_t bits, uint64_t bytes, int is_write) {
    for (; bits; bits >>= 1, at++)
        if (bits & 1) (is_write ? TOLD_WRITE : TOLD_READ)(*at, bytes);
}
#endif

/* One call: in and out are the arguments of the signature in the order in which Python says them. */
static int call(const work *w, const void *const *in, void *const *out) {
    size_t n = w->bytes[0] / sizeof(double);
    double number;
    switch (w->signature) {
    case SLOTS:
        return ((slots_f *)w->function)(in, out, NULL);
    case LOGP:
        return ((logp_f *)w->function)(n, in[0], out[1], out[0], (void *)in[1]);
    case NLOPT:
        *(double *)out[0] = ((nlopt_f *)w->function)((unsigned)n, in[0], out[1], (void *)in[1]);
        return 0;
    case VECTOR:
        return ((vector_f *)w->function)(n, w->bytes[w->feeds] / sizeof(double), in[0], out[0], (void *)in[1]);
    case ODE:
        memcpy(&number, in[0], sizeof number);
        ((ode_f *)w->function)(number, in[1], out[0], in[2]);
        return 0;
    case SCALAR:
        memcpy(&number, in[0], sizeof number);
        *(double *)out[0] = ((scalar_f *)w->function)(number, (void *)in[1]);
        return 0;
    default:
        *(double *)out[0] = ((scalars_f *)w->function)((int)n, (double *)in[0], (void *)in[1]);
        return 0;
    }
}

static void *run(void *given) {
    work *w = given;
    const void *in[MOST];
    void *out[MOST];
    for (int i = 0; i < w->feeds; i++) {
        char *copy = guarded(w->bytes[i], w->number % 2);
        memcpy(copy, w->in[i], w->bytes[i]);
        in[i] = copy;
    }
    for (int i = 0; i < w->results; i++)
        out[i] = w->shared ? w->shared[i] : guarded(w->bytes[w->feeds + i], w->number % 2);
    for (int n = 0; n < w->calls; n++) {
        for (int i = 0; i < w->results && !w->shared; i++) memset(out[i], 0xA5, w->bytes[w->feeds + i]);
        w->status |= call(w, in, out);
        for (int i = 0; i < w->results && !w->shared; i++)
            w->wrong += memcmp(out[i], w->expected[i], w->bytes[w->feeds + i]) != 0;
    }
    return NULL;
}

/* The number of results that differ from what is expected, of so many threads that call at once, each with arrays of
   its own, or all with the results that are shared; -1 if a call has failed. */
long call_at_once(int signature, void (*function)(void), int feeds, int results, const size_t *bytes,
                  const void *const *in, const void *const *expected, void *const *shared, int threads, int calls) {
    pthread_t started[MOST];
    work all[MOST];
    long wrong = 0;
    for (int i = 0; i < threads; i++) {
        all[i] = (work){signature, function, i, feeds, results, calls, 0, bytes, in, expected, shared, 0};
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

double maximize(nlopt_f *function, unsigned n, double *x, double rate,
                int steps, void *user) {
    double grad[MOST];
    for (int s = 0; s < steps; s++) {
        function(n, x, grad, user);
        for (unsigned i = 0; i < n; i++) x[i] += rate * grad[i];
    }
    return function(n, x, NULL, user);
}

/* Euler's method. */
void integrate(ode_f *function, size_t n, double *u, const double *p,
               double dt, int steps) {
    double du[MOST];
    for (int s = 0; s < steps; s++) {
        function(s * dt, u, du, p);
        for (size_t i = 0; i < n; i++) u[i] += dt * du[i];
    }
}
