/*
 * What lines of text logs hold, in C: words, and lines that were seen before. Part of the library
 * of kernel.c, and like it optional: markers.py and seen_lines.py of the parsers find the same
 * without it (tests/unit/test_seen_lines.py).
 */
#include "loops.h"

/* Whether a word stands in the data: its first and its last byte are sought together, 32 places at
   once. On the words of the parsers 4 to 15 times as fast as Python's own search. */
INLINE int64_t found(const uint8_t *data, int64_t size, const uint8_t *word, int64_t length) {
    int64_t at = 0, places = size - length + 1;
    if (length < 1) return 1;
#if defined(__GNUC__)
    typedef uint8_t Many __attribute__((vector_size(32)));
    Many first, last;
    memset(&first, word[0], sizeof first);
    memset(&last, word[length - 1], sizeof last);
    for (; at + 32 <= places; at += 32) {
        Many begin, end;
        uint64_t hits[4];
        memcpy(&begin, data + at, sizeof begin);
        memcpy(&end, data + at + length - 1, sizeof end);
        begin = (Many)((begin == first) & (end == last));
        memcpy(hits, &begin, sizeof hits);
        if (!(hits[0] | hits[1] | hits[2] | hits[3])) continue;
        for (int64_t k = at; k < at + 32; k++)
            if (data[k] == word[0] && !memcmp(data + k, word, (size_t)length)) return 1;
    }
#endif
    for (; at < places; at++)
        if (data[at] == word[0] && !memcmp(data + at, word, (size_t)length)) return 1;
    return 0;
}

API TWICE int64_t loganalyze_holds(const uint8_t *data, int64_t size, const uint8_t *word,
                                   int64_t length) {
    return found(data, size, word, length);
}

/* Which of `count` words stand in the data: their places, in order; how many. Word k is
   text[bounds[k] .. bounds[k + 1]). */
API TWICE int64_t loganalyze_words(const uint8_t *data, int64_t size, const uint8_t *text,
                                   const int64_t *bounds, int64_t count, int64_t *places) {
    int64_t done = 0;
    for (int64_t k = 0; k < count; k++)
        if (found(data, size, text + bounds[k], bounds[k + 1] - bounds[k])) places[done++] = k;
    return done;
}

/* Lines that were seen, by their hash: a line stands in the first free of the PROBES slots from
   its own on, or, where all are taken, in none. */
typedef struct {
    const uint8_t *text;   /* line k is text[bounds[k] .. bounds[k + 1]) */
    const int64_t *bounds;
    int64_t count;
    int32_t *slots; /* lines; -1: none */
    int64_t size;   /* of the slots: a power of two */
} Seen;

#define PROBES 16

static uint64_t word_of(const uint8_t *at, int64_t length) {
    uint64_t word = 0;
    memcpy(&word, at, (size_t)(length < 8 ? length : 8));
    return word;
}

static uint64_t hash_of(const uint8_t *at, int64_t length) {
    uint64_t hash = (uint64_t)length;
    for (; length > 0; at += 8, length -= 8) {
        hash = (hash ^ word_of(at, length)) * 0x9e3779b97f4a7c15ull;
        hash ^= hash >> 29;
    }
    return hash;
}

/* Puts all lines into the slots, which are -1. */
API void loganalyze_see(const Seen *seen) {
    for (int64_t k = 0; k < seen->count; k++) {
        int64_t begin = seen->bounds[k];
        uint64_t hash = hash_of(seen->text + begin, seen->bounds[k + 1] - begin);
        for (int probe = 0; probe < PROBES; probe++) {
            int32_t *slot = seen->slots + ((hash + (uint64_t)probe) & (uint64_t)(seen->size - 1));
            if (*slot >= 0) continue;
            *slot = (int32_t)k;
            break;
        }
    }
}

/* The seen line that the bytes are; -1: none that is in the slots. */
INLINE int32_t place_of(const Seen *seen, const uint8_t *at, int64_t length) {
    uint64_t hash = hash_of(at, length);
    for (int probe = 0; probe < PROBES; probe++) {
        int32_t k = seen->slots[(hash + (uint64_t)probe) & (uint64_t)(seen->size - 1)];
        if (k < 0) return -1;
        int64_t begin = seen->bounds[k];
        if (seen->bounds[k + 1] - begin == length &&
            !memcmp(seen->text + begin, at, (size_t)length))
            return k;
    }
    return -1;
}

/* For each of `count` lines of the data the seen line that it is, or -1. */
API void loganalyze_seen(const Seen *seen, const uint8_t *data, const int64_t *starts,
                         const int64_t *ends, const int64_t *lines, int64_t count,
                         int32_t *places) {
    for (int64_t k = 0; k < count; k++) {
        int64_t line = lines[k];
        places[k] = place_of(seen, data + starts[line], ends[line] - starts[line]);
    }
}
