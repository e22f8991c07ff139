/* The driver of emulated runs on a Cortex-M board without a system: files "runs" and "results" are reached through the
   emulator (Arm's semihosting), the memory of a run is followed by bytes that must stay as they are. */
#include "cross.h"

#include <string.h>

enum { OPEN = 1, WRITE_TEXT = 4, WRITE = 5, READ = 6, EXIT = 32, FINISHED = 0x20026 };
#define GUARD 0xA5
#define CPACR (*(volatile uint32_t *)0xE000ED88)

extern char heap_begin[], heap_end[], stack_top[];
static char *next = heap_begin;
static int in, out;
static struct {
    char *at, *end;
} pieces[MOST];
static int count;

static int ask(int what, const void *how) {
    register int r0 __asm__("r0") = what;
    register const void *r1 __asm__("r1") = how;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static _Noreturn void leave(int status) {
    const int how[] = {FINISHED, status};
    for (;;) ask(EXIT, how);
}

void end(const char *why) {
    ask(WRITE_TEXT, why);
    leave(2);
}

static int opened(const char *name, int mode) {
    const uintptr_t how[] = {(uintptr_t)name, (uintptr_t)mode, strlen(name)};
    int file = ask(OPEN, how);
    if (file < 0) end("a file cannot be opened");
    return file;
}

void take(void *to, size_t bytes) {
    const uintptr_t how[] = {(uintptr_t)in, (uintptr_t)to, bytes};
    if (bytes && ask(READ, how)) end("the file of the runs is too short");
}

void give(const void *from, size_t bytes) {
    const uintptr_t how[] = {(uintptr_t)out, (uintptr_t)from, bytes};
    if (bytes && ask(WRITE, how)) end("the results cannot be written");
}

char *guarded(size_t bytes, int aligned) {
    size_t needed = aligned ? (bytes + LINE - 1) / LINE * LINE : bytes, whole = (needed + LINE - 1) / LINE * LINE;
    if ((size_t)(heap_end - next) < whole + 2 * LINE || count == MOST) end("no memory");
    memset(next, GUARD, LINE + whole + LINE);
    char *at = next + LINE + whole - needed;
    pieces[count].at = at;
    pieces[count++].end = at + needed;
    next += whole + 2 * LINE;
    return at;
}

void forget_all(void) {
    for (int i = 0; i < count; i++)
        for (int j = 0; j < LINE; j++)
            if (pieces[i].end[j] != (char)GUARD || pieces[i].at[-1 - j] != (char)GUARD)
                end("a program has written beside its memory");
    next = heap_begin;
    count = 0;
}

static void reset(void) {
    CPACR |= 0xF << 20; /* the floating-point unit */
    __asm__ volatile("dsb\n\tisb" ::: "memory");
    in = opened("runs", 1);
    out = opened("results", 5);
    run_all();
    leave(0);
}

static void fault(void) {
    end("a fault of the processor");
}

__attribute__((section(".vectors"), used)) static void *const vectors[] = {
    stack_top, reset, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0, fault, fault,
};
