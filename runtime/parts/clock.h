#pragma once

#include "part.h"

FILLED(MONOTONIC);

int clock_gettime(int clock, word *seconds_and_nanoseconds);

/* Nanoseconds of a clock that never goes back. */
static word now(void) {
    word time[2];
    clock_gettime((int)NUMBER(MONOTONIC), time);
    return time[0] * 1000000000 + time[1];
}
