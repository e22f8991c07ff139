/* What differs between systems in threads.c. LINUX: threads can be moved. */
#include "threads.h"

#ifdef LINUX
int sched_getcpu(void);
int sched_getaffinity(int thread, size_t nbytes, uint64_t *set);
int sched_setaffinity(int thread, size_t nbytes, const uint64_t *set);

word processor(void) { return sched_getcpu(); }

void move_from(word processor) {
    uint64_t free[CPU_SET / 8], apart[CPU_SET / 8];
    if ((uint64_t)processor >= 8 * CPU_SET || sched_getaffinity(0, CPU_SET, free) < 0)
        return;
    __builtin_memcpy(apart, free, CPU_SET);
    apart[processor / 64] &= ~((uint64_t)1 << processor % 64);
    if (!sched_setaffinity(0, CPU_SET, apart))
        sched_setaffinity(0, CPU_SET, free);
}
#else
word processor(void) { return -1; }

void move_from(word processor) { (void)processor; }
#endif
