/* What a thread of the pool asks of the processor and of the system (processors.c, systems.c). */
#pragma once

#include "part.h"

/* Give the other thread of a core its turn, for 10 to 50 ns. */
HIDDEN void pause(void);

/* Note the calling thread's floating-point modes, and take them over. */
HIDDEN void keep_modes(word *place);
HIDDEN void take_modes(const word *place);

/* The processor that the calling thread runs on, -1 where the system does not say. */
HIDDEN word processor(void);

/* Run on any other processor than this one, then be free again. */
HIDDEN void move_from(word processor);
