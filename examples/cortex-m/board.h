/* What the board gives to a program: a console, and how deep the stack has been. */
#include <stdint.h>

#define NOTHING INT32_MIN

/* Write a text, then a number if it is not NOTHING; or then a number with six decimals. */
void say(const char *text, int32_t number);
void say_millionths(const char *text, float number);

/* The most bytes of stack that have been in use since the start. */
int32_t stack_used(void);
