/* The machine code of threads.py, which says what it does.

   PART, TABLE, MODES, PROCESSOR, WORKERS and the shares of the threads are plain words: the caller writes them before
   it opens the gate, and a worker reads them after it has seen it open. */
#include "threads.h"

#include "clock.h"

FILLED(SIG_SETMASK);

int pthread_create(word *thread, const word *attributes, void *(*start)(void *), void *argument);
int pthread_attr_init(word *attributes);
int pthread_attr_setstacksize(word *attributes, size_t nbytes);
int pthread_attr_destroy(word *attributes);
int pthread_join(word thread, void **result);
int pthread_mutex_init(word *mutex, const void *attributes);
int pthread_mutex_lock(word *mutex);
int pthread_mutex_unlock(word *mutex);
int pthread_cond_init(word *condition, const void *attributes);
int pthread_cond_wait(word *condition, word *mutex);
int pthread_cond_signal(word *condition);
int pthread_cond_broadcast(word *condition);
int pthread_sigmask(int how, const word *set, word *old);
int sigfillset(word *set);

typedef struct PoolWord Pool;
typedef struct ThreadRecord Thread;
typedef void Part(void *table, word chunk, word worker);

enum { ROOM = 16 }; /* words for the largest attributes, and the largest set of signals, of any system */

static Thread *thread_of(Pool *pool, word number) { return (Thread *)(&pool->THREADS + number * RECORD); }

/* Entering is to count, then to look at the gate, closing to close it, then to look at the count; sleeping and waking
   are alike. That one of the two sees the other needs one order of all these accesses (Dekker). */
static word look_at(const word *place) { return __atomic_load_n(place, __ATOMIC_SEQ_CST); }
static void set(word *place, word value) { __atomic_store_n(place, value, __ATOMIC_SEQ_CST); }
static word add_to(word *place, word more) { return __atomic_fetch_add(place, more, __ATOMIC_SEQ_CST); }

/* Whether the pool is this thread's until it sets BUSY to null with release. */
static bool take(Pool *pool) {
    word idle = 0;
    return __atomic_compare_exchange_n(&pool->BUSY, &idle, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Between two looks of a wait that began then; false when it has been long enough. */
static bool relax(const Pool *pool, word since) {
    for (int i = 0; i < PAUSES; i++)
        pause();
    return now() - since < pool->PATIENCE;
}

/* Take chunks until none is left: of the thread's own share, then of the others'. NEXT is relaxed, as it decides which
   thread takes a chunk and nothing else: INSIDE hands over what chunks have written. */
static void work(Pool *pool, word worker) {
    Part *part = (Part *)pool->PART;
    void *table = (void *)pool->TABLE;
    word workers = pool->WORKERS, owner = worker;
    for (word tried = 0; tried <= workers; tried++) {
        Thread *share = thread_of(pool, owner);
        word end = share->END;
        while (__atomic_load_n(&share->NEXT, __ATOMIC_RELAXED) < end) {
            word chunk = __atomic_fetch_add(&share->NEXT, 1, __ATOMIC_RELAXED);
            if (chunk >= end)
                break;
            part(table, chunk, worker);
        }
        owner = owner == workers ? 0 : owner + 1;
    }
}

/* The gate's number when it is open and has another one than the last that the worker saw, else 0. */
static word opened(word gate, word last) { return gate & 1 && gate != last ? gate : 0; }

/* Sleep until the gate is open again; 0 when the pool is to stop. */
static word doze(Pool *pool, word last) {
    word gate;
    pthread_mutex_lock(&pool->MUTEX);
    add_to(&pool->ASLEEP, 1);
    while (!(gate = opened(look_at(&pool->GATE), last)) && !look_at(&pool->STOP))
        pthread_cond_wait(&pool->WAKE, &pool->MUTEX);
    add_to(&pool->ASLEEP, -1);
    pthread_mutex_unlock(&pool->MUTEX);
    return gate;
}

/* Wait for the gate to be open again, and say whether asleep; 0 when the pool is to stop. Acquire: what the caller wrote
   is read next. */
static word await_gate(Pool *pool, word last, bool *slept) {
    word since = now();
    *slept = false;
    do {
        word gate = opened(__atomic_load_n(&pool->GATE, __ATOMIC_ACQUIRE), last);
        if (gate)
            return gate;
    } while (relax(pool, since));
    *slept = true;
    return doze(pool, last);
}

/* Wake threads that sleep, up to a number of them. */
static void wake(Pool *pool, word wanted) {
    word asleep = look_at(&pool->ASLEEP);
    for (word i = 0; i < wanted && i < asleep; i++)
        pthread_cond_signal(&pool->WAKE);
}

static bool has_chunks(Pool *pool) {
    for (word i = 0; i <= pool->WORKERS; i++) {
        Thread *share = thread_of(pool, i);
        if (__atomic_load_n(&share->NEXT, __ATOMIC_RELAXED) < share->END)
            return true;
    }
    return false;
}

static void *worker(void *record) {
    Thread *self = record;
    Pool *pool = (Pool *)self->POOL;
    word number = self->NUMBER, gate = 0;
    bool slept;
    while ((gate = await_gate(pool, gate, &slept))) {
        add_to(&pool->INSIDE, 1);
        if (look_at(&pool->GATE) == gate) {
            word here = processor();
            if (here == pool->PROCESSOR && here >= 0)
                move_from(here);
            take_modes(&pool->MODES);
            if (slept && has_chunks(pool))
                wake(pool, WOKEN_BY_ONE);
            work(pool, number);
        }
        bool is_last = add_to(&pool->INSIDE, -1) == 1;
        if (look_at(&pool->WAITING) && is_last) {
            pthread_mutex_lock(&pool->MUTEX); /* the caller waits by now, or has seen that no thread is inside */
            pthread_mutex_unlock(&pool->MUTEX);
            pthread_cond_broadcast(&pool->LEFT);
        }
    }
    return NULL;
}

/* Make the workers; WORKERS becomes how many there are. */
static void start(Pool *pool) {
    word all[ROOM], old[ROOM], attributes[ROOM], made = 0;
    pool->STARTED = 1;
    sigfillset(all);
    pthread_sigmask((int)NUMBER(SIG_SETMASK), all, old);
    pthread_attr_init(attributes);
    pthread_attr_setstacksize(attributes, STACK_BYTES);
    for (word wanted = pool->WORKERS; made < wanted; made++) {
        Thread *thread = thread_of(pool, made + 1);
        thread->POOL = (word)pool;
        thread->NUMBER = made + 1;
        if (pthread_create(&thread->HANDLE, attributes, worker, thread))
            break;
    }
    pool->WORKERS = made;
    pthread_attr_destroy(attributes);
    pthread_sigmask((int)NUMBER(SIG_SETMASK), old, NULL);
}

/* Deal each thread a share of the chunks that lies together. */
static void deal(Pool *pool, word chunks) {
    word threads = pool->WORKERS + 1, from = 0;
    for (word i = 0; i < threads; i++) {
        word to = (word)((uint64_t)((i + 1) * chunks + pool->WORKERS) / (uint64_t)threads);
        __atomic_store_n(&thread_of(pool, i)->NEXT, from, __ATOMIC_RELAXED);
        thread_of(pool, i)->END = to;
        from = to;
    }
}

/* Wait until no worker is inside. */
static void join(Pool *pool) {
    if (!look_at(&pool->INSIDE))
        return;
    word since = now();
    while (look_at(&pool->INSIDE))
        if (!relax(pool, since)) {
            pthread_mutex_lock(&pool->MUTEX);
            set(&pool->WAITING, 1);
            while (look_at(&pool->INSIDE))
                pthread_cond_wait(&pool->LEFT, &pool->MUTEX);
            set(&pool->WAITING, 0);
            pthread_mutex_unlock(&pool->MUTEX);
            return;
        }
}

void run(Pool *pool, Part *part, void *table, word chunks) {
    if (!take(pool)) {
        for (word i = 0; i < chunks; i++)
            part(table, i, 0);
        return;
    }
    if (!pool->STARTED)
        start(pool);
    pool->PART = (word)part;
    pool->TABLE = (word)table;
    keep_modes(&pool->MODES);
    pool->PROCESSOR = processor();
    deal(pool, chunks);
    word gate = __atomic_load_n(&pool->GATE, __ATOMIC_RELAXED);
    set(&pool->GATE, gate + 1);
    if (chunks > 1 && look_at(&pool->ASLEEP)) {
        /* Who counts as asleep has seen the gate or waits by now; the mutex is free for those who are woken. */
        pthread_mutex_lock(&pool->MUTEX);
        pthread_mutex_unlock(&pool->MUTEX);
        wake(pool, chunks - 1 < WOKEN_BY_ONE ? chunks - 1 : WOKEN_BY_ONE);
    }
    work(pool, 0);
    set(&pool->GATE, gate + 2);
    join(pool);
    __atomic_store_n(&pool->BUSY, 0, __ATOMIC_RELEASE);
}

void reset(Pool *pool) {
    pool->STARTED = pool->STOP = pool->GATE = pool->INSIDE = pool->ASLEEP = pool->WAITING = 0;
    pool->RUN = (word)run;
    pthread_mutex_init(&pool->MUTEX, NULL);
    pthread_cond_init(&pool->WAKE, NULL);
    pthread_cond_init(&pool->LEFT, NULL);
    pool->BUSY = 0;
}

/* End the workers: 1 where that was possible. The pool stays taken, so later calls do their chunks themselves. */
int stop(Pool *pool) {
    if (!take(pool))
        return 0;
    if (pool->STARTED) {
        set(&pool->STOP, 1);
        pthread_mutex_lock(&pool->MUTEX);
        pthread_cond_broadcast(&pool->WAKE);
        pthread_mutex_unlock(&pool->MUTEX);
        for (word i = 0; i < pool->WORKERS; i++)
            pthread_join(thread_of(pool, i + 1)->HANDLE, NULL);
    }
    return 1;
}
