/* The machine code of results.py, which says what it does. */
#include "part.h"

int posix_memalign(void **place, size_t alignment, size_t nbytes);
void free(void *);
int madvise(void *, size_t nbytes, int advice);

typedef struct RecyclerWord Pool;
typedef struct IdleRecord Idle;
_Static_assert(sizeof(Idle) == RECORD * sizeof(word), "records lie one after the other");

/* What lies HEADER bytes before the data of a block. */
typedef struct {
    void *begin;
    word capacity;
} Header;

static Header *header_of(void *data) { return (Header *)((char *)data - HEADER); }

/* A block from the system; null where there is none. */
static void *fresh(const Pool *pool, uint64_t size) {
    if (size > ABSURD)
        return NULL;
    uint64_t total = ((size + PAGE - 1) & -PAGE) + HEADER;
    bool is_huge = size >= HUGE_FROM;
    if (is_huge) {
        /* An end that is most of a huge page is one, too, unless an eighth of the block would be wasted. */
        uint64_t whole = (total + HUGE_PAGE - 1) & -HUGE_PAGE;
        uint64_t slack = size / 8 <= HUGE_PAGE / 2 ? size / 8 : HUGE_PAGE / 2;
        if (whole - size <= slack)
            total = whole;
    }
    void *begin;
    if (posix_memalign(&begin, is_huge ? HUGE_PAGE : HEADER, total))
        return NULL;
    if (is_huge && pool->ADVICE)
        madvise(begin, total & -HUGE_PAGE, (int)pool->ADVICE);
    *(Header *)begin = (Header){begin, (word)(total - HEADER)};
    return (char *)begin + HEADER;
}

static void release(void *data) { free(header_of(data)->begin); }

/* Whether the pool is this thread's until it unlocks. Acquire and release order all other accesses of its words; a
   thread that fails reads none of them. */
static bool try_lock(Pool *pool) {
    word unlocked = 0;
    return __atomic_compare_exchange_n(&pool->LOCK, &unlocked, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static void unlock(Pool *pool) { __atomic_store_n(&pool->LOCK, 0, __ATOMIC_RELEASE); }

static Idle *records(Pool *pool) { return (Idle *)&pool->RECORDS; }

/* Take an idle block off the records: the last one fills the gap. */
static void *removed(Pool *pool, word number) {
    Idle *gap = &records(pool)[number];
    void *data = (void *)gap->DATA;
    pool->IDLE -= gap->CAPACITY;
    *gap = records(pool)[--pool->COUNT];
    return data;
}

/* The idle block that was given back first; there is at least one. */
static word oldest(Pool *pool) {
    word best = 0;
    for (word i = 1; i < pool->COUNT; i++)
        if (records(pool)[i].SINCE < records(pool)[best].SINCE)
            best = i;
    return best;
}

/* An idle block of at least this size that wastes an eighth and a page at most, else a fresh one. */
void *take(Pool *pool, uint64_t size) {
    if (size < RECYCLED_FROM || !try_lock(pool))
        return fresh(pool, size);
    pool->CLOCK++;
    uint64_t allowed = size / 8 + PAGE;
    for (word i = pool->COUNT; i-- > 0;)
        if ((uint64_t)records(pool)[i].CAPACITY - size <= allowed) {
            void *data = removed(pool, i);
            pool->RECYCLED++;
            unlock(pool);
            return data;
        }
    unlock(pool);
    return fresh(pool, size);
}

/* A block of before, whose owner is gone. NumPy also says how large the array was; the header knows better. */
void give(Pool *pool, void *data, uint64_t size) {
    (void)size;
    if (data == NULL)
        return;
    uint64_t capacity = (uint64_t)header_of(data)->capacity, limit = (uint64_t)pool->LIMIT;
    if (capacity < RECYCLED_FROM || capacity > limit || !try_lock(pool)) {
        release(data);
        return;
    }
    word time = ++pool->CLOCK;
    while (pool->COUNT > 0) {
        word first = oldest(pool);
        bool is_useless = time - records(pool)[first].SINCE > PATIENCE;
        if (!is_useless && pool->COUNT != MOST_IDLE && (uint64_t)pool->IDLE + capacity <= limit)
            break;
        release(removed(pool, first));
    }
    records(pool)[pool->COUNT++] = (Idle){(word)data, (word)capacity, time};
    pool->IDLE += (word)capacity;
    unlock(pool);
}

void *take_zeroed(Pool *pool, uint64_t count, uint64_t each) {
    uint64_t size;
    if (__builtin_mul_overflow(count, each, &size))
        return NULL;
    void *data = take(pool, size);
    return data == NULL ? NULL : __builtin_memset(data, 0, size);
}

void *resize(Pool *pool, void *data, uint64_t size) {
    if (data == NULL)
        return take(pool, size);
    uint64_t capacity = (uint64_t)header_of(data)->capacity;
    if (size <= capacity)
        return data;
    void *larger = take(pool, size);
    if (larger == NULL)
        return NULL;
    __builtin_memcpy(larger, data, capacity);
    give(pool, data, capacity);
    return larger;
}

/* All idle blocks go back to the system, unless another thread is at the pool. */
void trim(Pool *pool) {
    if (!try_lock(pool))
        return;
    while (pool->COUNT > 0)
        release(removed(pool, pool->COUNT - 1));
    unlock(pool);
}
