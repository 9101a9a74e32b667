/*
 * Running medians in C; part of the library of kernel.c, and like it optional: running.py asks
 * polars where there is none, and gets the same numbers (tests/unit/test_running.py).
 *
 * Held is not the whole window, but the values near its middle, in order, and how many lie below
 * them. A window that moves on by one point puts one value in and takes one out, and most of
 * those lie elsewhere; only when the median has walked out of what is held is the window looked
 * through again. That happens once in a hundred points or so, however wide the window is.
 */
#include "loops.h"

#include <math.h>

/* Of the window; as in __init__.py. */
#define MOST_WIDTH 4096
/* Looks with a guess before the whole window is put in order. */
#define GUESSES 4

typedef struct {
    double low, high;          /* the values from low to high are held, all of them */
    int64_t below, count;      /* values of the window below low; values held */
    double sorted[MOST_WIDTH]; /* those */
} Middle;

/* The outcome of a comparison as a number. Compilers like to jump by it, and half of these jumps
   are foretold wrongly, which takes longer than all else that is done to a value. */
static int64_t number(int64_t outcome) {
    __asm__("" : "+r"(outcome));
    return outcome;
}

static void put_in(Middle *m, double value) {
    int64_t k = m->count++;
    for (; k > 0 && m->sorted[k - 1] > value; k--) m->sorted[k] = m->sorted[k - 1];
    m->sorted[k] = value;
}

static void take_out(Middle *m, double value) {
    int64_t k = 0;
    while (m->sorted[k] != value) k++;
    m->count--;
    for (; k < m->count; k++) m->sorted[k] = m->sorted[k + 1];
}

static int holds(const Middle *m, double value) {
    return !(number(value < m->low) + number(value > m->high));
}

/* Holds the window's values from low to high. */
static void gather(Middle *m, const double *window, int64_t width, double low, double high) {
    int64_t below = 0, found = 0;
    m->low = low, m->high = high, m->count = 0;
    for (int64_t k = 0; k < width; k++) {
        m->sorted[found] = window[k];
        found += holds(m, window[k]);
        below += number(window[k] < low);
    }
    m->below = below;
    for (int64_t k = 0; k < found; k++) put_in(m, m->sorted[k]);
}

/* How many values on either side of the median are enough: it walks farther in a wide window. */
static int64_t near(int64_t width) { return 5 + width / 32; }

/* Holds the middle of a window put in order as a whole. */
static void middle_of_all(Middle *m, const double *window, int64_t width) {
    int64_t half = width / 2, first = half - near(width), last = half + near(width);
    gather(m, window, width, -INFINITY, INFINITY);
    first = first < 0 ? 0 : first;
    last = last < width ? last : width - 1;
    m->low = m->sorted[first], m->high = m->sorted[last];
    while (first > 0 && m->sorted[first - 1] == m->low) first--;
    while (last + 1 < width && m->sorted[last + 1] == m->high) last++;
    m->below = first, m->count = last + 1 - first;
    memmove(m->sorted, m->sorted + first, (size_t)m->count * sizeof *m->sorted);
}

/* Holds the middle of a window that the median has walked to: as far around as before. */
static void look_again(Middle *m, const double *window, int64_t width) {
    int64_t half = width / 2;
    double reach = 0.5 * (m->high - m->low), centre = half < m->below ? m->low : m->high;
    for (int guess = 0; guess < GUESSES && reach > 0 && reach < INFINITY; guess++) {
        gather(m, window, width, centre - reach, centre + reach);
        int64_t at = half - m->below;
        if (at >= 0 && at < m->count) {
            if (m->count <= 4 * near(width)) return;
            centre = m->sorted[at], reach *= 0.5;
        } else {
            centre += at < 0 ? -reach : reach;
        }
    }
    middle_of_all(m, window, width);
}

/* Medians of each `width` (odd, at most MOST_WIDTH) neighbours of `count` values, of which none is
   NaN: count - width + 1 of them. */
API void loganalyze_medians(const double *values, int64_t count, int64_t width, double *medians) {
    Middle m;
    int64_t half = width / 2;
    if (width < 1 || width > MOST_WIDTH || width > count) return;
    middle_of_all(&m, values, width);
    for (int64_t at = 0;; at++) {
        if (half < m.below || half >= m.below + m.count) look_again(&m, values + at, width);
        medians[at] = m.sorted[half - m.below];
        if (at + width == count) return;
        double gone = values[at], come = values[at + width];
        m.below += number(come < m.low) - number(gone < m.low);
        if (holds(&m, gone)) take_out(&m, gone);
        if (holds(&m, come)) put_in(&m, come);
    }
}

/* Medians of the up to `width` (at most MOST_WIDTH) values before each of `count`, of which none is
   NaN; NaN before the first. */
API void loganalyze_past_medians(const double *values, int64_t count, int64_t width,
                                 double *medians) {
    double seen[MOST_WIDTH];
    if (width < 1 || width > MOST_WIDTH) return;
    for (int64_t at = 0; at < count && at < width; at++) {
        int64_t half = at / 2, k = at;
        medians[at] = at % 2 ? seen[half] : at ? 0.5 * (seen[half - 1] + seen[half]) : NAN;
        for (; k > 0 && seen[k - 1] > values[at]; k--) seen[k] = seen[k - 1];
        seen[k] = values[at];
    }
    if (count > width) loganalyze_medians(values, count - 1, width, medians + width);
}
