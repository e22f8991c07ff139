/* What a machine gives to the driver of emulated runs (cross.c). */
#include <stddef.h>
#include <stdint.h>

#define LINE 64
#define MOST 4096 /* pieces of memory of one run */

/* Read or write so many bytes of the file of the runs or of the results, or end. */
void take(void *to, size_t bytes);
void give(const void *from, size_t bytes);

/* Memory for so many bytes, of which the last, or the last of the line, is followed by what a program may not touch. */
char *guarded(size_t bytes, int aligned);

/* The memory of a run is not used any more. */
void forget_all(void);

/* End with a message. */
_Noreturn void end(const char *why);

/* All runs. */
void run_all(void);
