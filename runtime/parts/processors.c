/* What differs between processors in threads.c. Where floating-point modes are unknown, workers keep their own. */
#include "threads.h"

#if defined(__x86_64__)
void pause(void) { __builtin_ia32_pause(); }
void keep_modes(word *place) { *(uint32_t *)place = __builtin_ia32_stmxcsr(); }
void take_modes(const word *place) { __builtin_ia32_ldmxcsr(*(const uint32_t *)place); }
#elif defined(__aarch64__)
/* LLVM's own functions, which clang has no names for. */
word get_fpcr(void) __asm__("llvm.aarch64.get.fpcr");
void set_fpcr(word) __asm__("llvm.aarch64.set.fpcr");

void pause(void) { __builtin_arm_yield(); }
void keep_modes(word *place) { *place = get_fpcr(); }
void take_modes(const word *place) { set_fpcr(*place); }
#else
void pause(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void keep_modes(word *place) { (void)place; }
void take_modes(const word *place) { (void)place; }
#endif
