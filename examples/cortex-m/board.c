/* A Cortex-M4 from reset to main, and a console over semihosting: the debugger, or QEMU, writes what it is given. */
#include "board.h"

#include <string.h>

#define CPACR (*(volatile uint32_t *)0xE000ED88)
#define PAINT 0x57AC57ACu /* what words of the stack hold that nobody has written */

extern uint32_t stack_bottom[], stack_top[], bss_begin[], bss_end[]; /* of link.ld */
int main(void);

/* -- semihosting ------------------------------------------------------------------------------------------------- */

enum { WRITE_TEXT = 0x04, EXIT = 0x20, FINISHED = 0x20026 };

static void ask(int what, const void *how) {
    register int r0 __asm__("r0") = what;
    register const void *r1 __asm__("r1") = how;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

static void leave(int status) {
    const int how[] = {FINISHED, status};
    for (;;) ask(EXIT, how);
}

void say(const char *text, int32_t number) {
    char digits[12], *next = digits + sizeof digits;
    ask(WRITE_TEXT, text);
    if (number == NOTHING) return;
    uint32_t rest = number < 0 ? -(uint32_t)number : (uint32_t)number;
    *--next = 0;
    do *--next = (char)('0' + rest % 10); while (rest /= 10);
    if (number < 0) *--next = '-';
    ask(WRITE_TEXT, next);
}

void say_millionths(const char *text, float number) {
    int32_t all = (int32_t)(number * 1e6f + 0.5f);
    say(text, all / 1000000);
    char decimals[] = ".000000";
    for (int place = 6, rest = all % 1000000; place; place--, rest /= 10) decimals[place] = (char)('0' + rest % 10);
    ask(WRITE_TEXT, decimals);
}

/* -- the stack ----------------------------------------------------------------------------------------------------- */

int32_t stack_used(void) {
    const uint32_t *word = stack_bottom;
    while (word < stack_top && *word == PAINT) word++;
    return (int32_t)((uintptr_t)stack_top - (uintptr_t)word);
}

/* -- start --------------------------------------------------------------------------------------------------------- */

static void fault(void) {
    say("a fault of the processor\n", NOTHING);
    leave(1);
}

static void start(void) {
    CPACR |= 0xFu << 20; /* switch the floating-point unit on */
    __asm__ volatile("dsb\n\tisb" ::: "memory");
    memset(bss_begin, 0, (size_t)((char *)bss_end - (char *)bss_begin));
    volatile uint32_t *end = (uint32_t *)__builtin_frame_address(0) - 16;
    for (volatile uint32_t *word = stack_bottom; word < end; word++) *word = PAINT;
    leave(main());
}

/* What the processor reads at its reset: the stack, then where to go at a reset, a fault, an interrupt. */
__attribute__((section(".vectors"), used)) static const struct {
    const void *stack;
    void (*handlers[15])(void);
} vectors = {stack_top, {start, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0, fault, fault}};
