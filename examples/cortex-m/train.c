/* Trains the net that rings.py has exported on a microcontroller, and says how much of its stack that took. */
#include <stdalign.h>
#include <string.h>

#include "board.h"
#include "points.h" /* points, rings */
#include "rings.h"  /* train_step, predict, and the memory that they need */

#define LARGER(a, b) ((a) > (b) ? (a) : (b))
enum { STEPS = 200 };

alignas(RINGS_ALIGNMENT) unsigned char state[RINGS_STATE_BYTES];
alignas(RINGS_ALIGNMENT) unsigned char workspace[LARGER(TRAIN_STEP_WORKSPACE_BYTES, PREDICT_WORKSPACE_BYTES)];

int main(void) {
    memcpy(state, rings_initial_state, sizeof state);
    for (int step = 1; step <= STEPS; step++) {
        float loss;
        const void *in[TRAIN_STEP_INS] = {points, rings};
        void *out[TRAIN_STEP_OUTS] = {&loss};
        if (train_step(in, out, workspace, state) != 0) return 1;
        if (step % 20 == 0) {
            say("step ", step);
            say_millionths(": loss ", loss);
            say("\n", NOTHING);
        }
    }

    int right = 0;
    for (int i = 0; i < POINTS; i++) {
        int32_t ring;
        const void *in[PREDICT_INS] = {points[i]};
        void *out[PREDICT_OUTS] = {&ring};
        if (predict(in, out, workspace, state) != 0) return 1;
        right += ring == rings[i];
    }
    say("", right);
    say(" of ", POINTS);
    say(" points right\nstack: ", stack_used());
    say(" bytes\n", NOTHING);
    return 0;
}
