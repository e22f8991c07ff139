/* Trains the net that export.py has exported, in C99 (with alignas of C11) or C++11: no Python, no heap. */
#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#include "digits.h" /* pixels, labels, test_pixels, test_labels */
#include "net.h"    /* train_step, predict, and the memory that they need */

#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#ifndef EPOCHS
#define EPOCHS 10
#endif

/* All memory: the functions have none of their own. One workspace is enough, as they run one after the other. */
alignas(NET_ALIGNMENT) static unsigned char state[NET_STATE_BYTES];
alignas(NET_ALIGNMENT) static unsigned char workspace[LARGER(TRAIN_STEP_WORKSPACE_BYTES, PREDICT_WORKSPACE_BYTES)];

int main(void) {
    static char line[BUFSIZ];
    setvbuf(stdout, line, _IOLBF, sizeof line); /* otherwise printf takes a buffer from the heap */

    memcpy(state, net_initial_state, sizeof state);
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        double sum = 0;
        for (int first = 0; first + BATCH <= IMAGES; first += BATCH) {
            float loss;
            const void *in[TRAIN_STEP_INS];
            void *out[TRAIN_STEP_OUTS];
            in[TRAIN_STEP_IN_PIXELS] = pixels[first];
            in[TRAIN_STEP_IN_LABELS] = &labels[first];
            out[TRAIN_STEP_OUT_LOSS] = &loss;
            int status = train_step(in, out, workspace, state);
            if (status != 0) return printf("train_step: %d, see net.h\n", status), 1;
            sum += (double)loss;
        }
        printf("epoch %d: loss %.9g\n", epoch, sum / (IMAGES / BATCH));
    }

    int right = 0;
    for (int i = 0; i < TESTS; i++) {
        int64_t digit;
        const void *in[PREDICT_INS] = {test_pixels[i]};
        void *out[PREDICT_OUTS] = {&digit};
        if (predict(in, out, workspace, state) != 0) return 1;
        right += digit == test_labels[i];
    }
    printf("%d of %d test images right\n", right, TESTS);
    return 0;
}
